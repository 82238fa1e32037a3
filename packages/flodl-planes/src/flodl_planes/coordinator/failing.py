"""A rank's failure that is told of while a round is under way waits for that round, for a second at most.

On one box a rank has the average before the hub knows that it is whole. A script that breaks right behind it, in the
last evaluation say, is heard of first: to fail the run at once would throw away an average that is there.
"""

from __future__ import annotations

from flodl_planes.coordinator.hub_events import HubEvent
from flodl_planes.coordinator.training import Training
from flodl_planes.coordinator.transport_events import FromRank
from flodl_wire.hub_messages import RankGone
from flodl_wire.plane_messages import Leaving

WAIT_S = 1.0


class Failing:
    """Holds the first such word back; what else is heard of the rank meanwhile says the same with fewer words."""

    def __init__(self) -> None:
        self._held: HubEvent | None = None
        self._since: float | None = None  # the first such word came

    def holds(self, event: HubEvent, training: Training | None, now: float) -> bool:
        """Whether `event` is to be left for later."""
        says_error = isinstance(event, FromRank) and isinstance(event.message, Leaving) and bool(event.message.error)
        if not says_error and not (isinstance(event, RankGone) and event.code):
            return False
        if training is None or training.open is None or training.open.number == 0:
            return False
        if self._since is None:
            self._held, self._since = event, now
        return self._held is not None

    def due(self, training: Training, now: float) -> HubEvent | None:
        """What was held back, once the round is over or has taken too long."""
        under_way = training.open is not None and self._since is not None and now - self._since < WAIT_S
        held = None if under_way else self._held
        if held is not None:
            self._held = None
        return held
