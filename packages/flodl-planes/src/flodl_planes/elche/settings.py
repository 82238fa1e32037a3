"""What a user may set about the cadence, its defaults, and the constants nobody sets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from flodl_wire.faults import Refused

COHORT_BAND = 0.15  # ranks within 15 % of the slowest are the slow cohort
DOMINANCE_MARGIN = 0.10  # a challenger must be 10 % slower than the anchor to replace it
TRUST_SAMPLES = 5  # windows a rank's speed is averaged over; as many misses in a row clear it
MAX_SPEED_RATIO = 64.0
COUNT_HYSTERESIS = 0.05  # counts move only for a change of more than 5 %
STABLE_AFTER = 5  # reports
MATURE_AFTER = 20
GROWTH_REARM = 5  # stable verdicts until growth is allowed again
GROWTH_STEP_CAP = 2.0
WARMUP_MARGIN = 2.0  # in warm-up only an overhead beyond twice the target counts
LARGEST_ANCHOR = 1000  # the reference's bound
# Ours: an anchor may begin to grow from a 64th of what the link asks for, since doubling from ten would take a slow
# link (16 s an average, 0.1 s a batch) nine averages, each longer than all the work before it. Six doublings are left,
# each under the eye of the guards.
LEAP = 64
COSTS = 3  # averages whose median cost counts: one hiccup of the network must not grow an anchor that never shrinks


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Terms.elche. `overhead_target` is the share of a window that averaging may cost before the window grows."""

    anchor: int = 10
    min_anchor: int | None = None  # None: the anchor it starts with
    max_anchor: int | None = None  # None: 1000, unless averages need more to stay within the target (ours)
    overhead_target: float = 0.05
    max_batch_diff: int | None = None  # largest change of a count per window; None: none
    relax_up: bool = False
    accumulate: int = 1  # batches that make one step of a rank: windows hold whole ones
    progressive: bool = True  # a rank that is done before the others is dealt more of the window
    max_overshoot: int | None = None  # cpu_async: pins how far a rank may run ahead of an average; None: 3 to 15
    speed_hint: tuple[int, float] | None = None  # (slowest rank, how many times faster the others are)
    partition_ratios: list[float] | None = None  # one per rank; the smallest names the first anchor
    guard: Literal["trend", "msf", "none"] = "trend"
    divergence_threshold: float = 0.05
    meta_controller: bool = True  # shrinks the anchor when the learning rate drops or the guard goes on objecting

    @property
    def floor(self) -> int:
        return self.anchor if self.min_anchor is None else self.min_anchor

    @property
    def ceiling(self) -> int:
        """The most that anything but the cost of averages may raise the anchor to."""
        return max(LARGEST_ANCHOR, self.anchor, self.floor) if self.max_anchor is None else self.max_anchor

    @property
    def target(self) -> float:
        return min(max(self.overhead_target, 0.01), 0.5)


def read_settings(terms: Mapping[str, Any], world_size: int) -> Settings:
    """Terms.elche as Settings. Raises Refused naming the key that is wrong."""

    def refuse(why: str) -> Refused:
        return Refused(
            "bad-elche", "cannot use the cadence settings", why, "keys: " + ", ".join(Settings.__struct_fields__)
        )

    try:
        settings = msgspec.convert(dict(terms), Settings)
    except msgspec.ValidationError as err:
        raise refuse(str(err)) from None
    if settings.anchor < 1 or settings.floor < 1 or settings.ceiling < max(settings.anchor, settings.floor):
        raise refuse("1 ≤ anchor, 1 ≤ min_anchor, and max_anchor is the largest")
    if settings.max_batch_diff is not None and settings.max_batch_diff < 0:
        raise refuse("max_batch_diff is 0 or more")
    if settings.max_overshoot is not None and settings.max_overshoot < 0:
        raise refuse("max_overshoot is 0 or more")
    if settings.accumulate < 1:
        raise refuse("accumulate is 1 or more")
    ratios = settings.partition_ratios
    if ratios is not None and (len(ratios) != world_size or min(ratios) <= 0):
        raise refuse(f"partition_ratios takes one positive number per rank, {world_size} here")
    hint = settings.speed_hint
    if hint is not None and not (0 <= hint[0] < world_size and hint[1] >= 1):
        raise refuse("speed_hint is (slowest rank, ratio of 1 or more)")
    return settings
