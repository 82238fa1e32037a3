"""What a user asks of the Trainer, checked: the numbers here, the objects (model, data, loss) as far as that goes
without torch.

Every refusal says what the Trainer was given, why that cannot be meant, and what to write instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from flodl_planes.rank.refusal import is_number, is_whole, refuse
from flodl_planes.rank.wishes import Safety
from flodl_wire.config import MODES
from flodl_wire.faults import Refused
from flodl_wire.plane_messages import Terms

TRAINED = tuple(mode for mode in MODES if mode != "torch")
ALONE_MODE = "cpu_cadence"  # what a run alone reports: the default of a world too
GUARDS = ("trend", "msf", "none")


@dataclass(frozen=True)
class Cadence:
    """The knobs of ElChe that a user has set; None leaves the hub's default (reference-behaviours §6.2)."""

    anchor: int | None = None
    min_anchor: int | None = None
    max_anchor: int | None = None
    overhead_target: float | None = None
    max_batch_diff: int | None = None
    relax_up: bool | None = None
    partition_ratios: list[float] | None = None
    guard: str | None = None
    divergence_threshold: float | None = None
    max_overshoot: int | None = None
    meta_controller: bool | None = None
    progressive: bool | None = None
    speed_hint: tuple[int, float] | None = None
    accumulate: int | None = None

    def check(self) -> None:
        """Raises Refused naming the first knob that cannot be meant."""
        for name in ("anchor", "min_anchor", "max_anchor"):
            why, fix = "it counts batches between two averages", f"use a whole number, 1 or more, e.g. {name}=10"
            self._need(name, lambda value: is_whole(value) and value >= 1, why, fix)
        lowest = self.min_anchor or self.anchor or 1
        why, fix = f"it is below the smallest anchor, {lowest}", "raise max_anchor or lower anchor and min_anchor"
        self._need("max_anchor", lambda value: value >= lowest, why, fix)
        why = "it is the share of time that averaging may take"
        fix = "use a number between 0 and 1; the default is 0.05"
        self._need("overhead_target", lambda value: is_number(value) and 0 < value < 1, why, fix)
        fix = "use a whole number, 0 or more, or leave it out"
        for name, why in (
            ("max_batch_diff", "it counts batches"),
            ("max_overshoot", "it counts batches that a rank may do before an average is in"),
        ):
            self._need(name, lambda value: is_whole(value) and value >= 0, why, fix)
        for name in ("relax_up", "meta_controller", "progressive"):
            self._need(name, lambda value: isinstance(value, bool), "it is a switch", "use True or False")
        fix = f"use one of {', '.join(GUARDS)}"
        self._need("guard", lambda value: value in GUARDS, "there is no such convergence guard", fix)
        why, fix = "it must be above 0", "the default is 0.05"
        self._need("divergence_threshold", lambda value: is_number(value) and value > 0, why, fix)
        why, fix = "they are the ranks' shares of the work", "use one positive number per rank, e.g. [2.5, 1]"
        self._need("partition_ratios", _are_ratios, why, fix)
        why = "it is the slowest rank, and how many times as fast the others are"
        self._need("speed_hint", _is_hint, why, "use a rank and a number of 1 or more, e.g. (1, 2.5)")

    def _need(self, name: str, fits: Callable[[Any], bool], why: str, fix: str) -> None:
        """Of a knob that is set."""
        value = getattr(self, name)
        if value is not None and not fits(value):
            raise refuse(name, value, why, fix)

    def as_elche(self) -> dict[str, Any]:
        """The knobs that are set, as they travel in `Terms.elche`."""
        named = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in named.items()
            if value is not None
        }


@dataclass(frozen=True)
class Settings:
    """The Trainer's numbers. `mode` in its underscore spelling, None when the world may decide."""

    batch_size: int
    epochs: int
    seed: int = 0
    workers: int = 0
    mode: str | None = None
    gamma: float = 1.0
    cadence: Cadence = field(default_factory=Cadence)
    wire: str = "float32"  # these two as averaging.py has checked them
    outer: dict[str, Any] = field(default_factory=dict)
    safety: Safety = field(default_factory=Safety)

    def __post_init__(self) -> None:
        """Raises Refused naming the first argument that cannot be meant."""
        if not (is_whole(self.batch_size) and self.batch_size >= 1):
            raise refuse(
                "batch_size",
                self.batch_size,
                "a batch holds at least one sample",
                "use a whole number, 1 or more, e.g. batch_size=32",
            )
        if not (is_whole(self.epochs) and self.epochs >= 1):
            why = "that trains nothing" if is_whole(self.epochs) else "it is no whole number"
            raise refuse("epochs", self.epochs, why, "use a whole number, 1 or more")
        if not (is_whole(self.seed) and self.seed >= 0):
            raise refuse(
                "seed", self.seed, "it starts the random streams of every rank", "use a whole number, 0 or more"
            )
        if not (is_whole(self.workers) and self.workers >= 0):
            raise refuse(
                "workers",
                self.workers,
                "it counts the processes that load data",
                "use 0 (load in the rank itself) or more",
            )
        if not (is_number(self.gamma) and self.gamma >= 0):
            raise refuse(
                "gamma",
                self.gamma,
                "a rank's weight is its steps to the power of gamma",
                "use 0 or more; the default is 1.0",
            )
        if self.mode is not None:
            object.__setattr__(self, "mode", self.mode.replace("-", "_") if isinstance(self.mode, str) else self.mode)
            if self.mode not in MODES:
                raise refuse(
                    "mode", self.mode, "there is no such mode", f"use one of {', '.join(TRAINED)}, or leave it out"
                )
            check_trained(self.mode)
        self.cadence.check()

    def terms(self, mode: str, samples: int, evaluates: bool) -> Terms:
        """What this rank tells the hub it was asked to do."""
        return Terms(
            mode=mode,
            dataset=samples,
            batch_size=self.batch_size,
            epochs=self.epochs,
            seed=self.seed,
            evaluates=evaluates,
            gamma=float(self.gamma),
            elche=self.cadence.as_elche(),
            wire=self.wire,
            outer=self.outer,
            **vars(self.safety),
        )

    def agree(self, world_mode: str, world_size: int) -> None:
        """Raises Refused when the world that formed is not the one this script asks for."""
        if self.mode is not None and self.mode != world_mode:
            raise Refused(
                "mode-differs",
                f"cannot train with mode={self.mode!r} here",
                f"the run was started in mode {world_mode}",
                f"start it with `fdl --mode {self.mode} …`, or leave mode= out: it governs a script run alone",
            )
        check_trained(world_mode)
        if world_mode.startswith("nccl"):
            for name, value, plain in (("wire", self.wire, "float32"), ("outer", self.outer, {})):
                if value != plain:
                    raise refuse(
                        name,
                        value,
                        f"in mode {world_mode} the tensors travel from rank to rank, past the hub that would do it",
                        f"leave {name} out, or use --mode cpu_cadence",
                    )
        ratios = self.cadence.partition_ratios
        if ratios is not None and len(ratios) != world_size:
            raise refuse("partition_ratios", ratios, f"the world has {world_size} ranks", "give one number per rank")
        hint = self.cadence.speed_hint
        if hint is not None and hint[0] >= world_size:
            raise refuse("speed_hint", hint, f"the world has {world_size} ranks", f"name one of 0 to {world_size - 1}")
        chosen = self.safety.callback_rank
        if chosen is not None and chosen >= world_size:
            raise refuse("callback_rank", chosen, f"the world has {world_size} ranks", f"use 0 to {world_size - 1}")


def _are_ratios(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and bool(value) and all(is_number(one) and one > 0 for one in value)


def _is_hint(given: Any) -> bool:
    if not (isinstance(given, (list, tuple)) and len(given) == 2):
        return False
    rank, ratio = given
    return is_whole(rank) and rank >= 0 and is_number(ratio) and ratio >= 1


def check_trained(mode: str) -> None:
    """Raises Refused for a mode in which the Trainer does not train."""
    if mode == "torch":
        raise Refused(
            "mode-torch",
            "cannot use the Trainer in mode torch",
            "that mode starts scripts which call torch.distributed themselves",
            f"start the run in one of {', '.join(TRAINED)}, or call torch.distributed yourself",
        )


def check_dataset(data: Any, world_size: int) -> int:
    """The number of samples of a map-style dataset. Raises Refused for anything else, saying what to pass."""
    if hasattr(data, "dataset") and hasattr(data, "batch_sampler"):  # torch's DataLoader, without importing torch
        raise Refused(
            "dataloader",
            "cannot train with data=DataLoader(…)",
            "the batches are dealt to the ranks by flodl, sample by sample, and a loader has already made its own",
            "pass what you gave the loader: Trainer(data=loader.dataset, batch_size=…, workers=…, collate=…)",
        )
    if any(kind.__name__ == "IterableDataset" for kind in type(data).__mro__):
        why = "it is an IterableDataset, a stream, and every rank must reach every sample by its number"
        fix = "where the samples fit into memory: data=list(dataset); else write a Dataset with __len__ and __getitem__"
        raise refuse("data", data, why, fix)
    if isinstance(data, (str, bytes, Mapping)):
        fix = "pass what holds the samples: an object with __len__ and [index] (a list will do)"
        raise refuse("data", data, "it holds no samples that are reached by a number", fix)
    if _is_columns(data):
        why = f"it is a tuple of {len(data)} arrays, so data[0] is not one sample but all that stands in the first"
        raise refuse("data", data, why, "pass torch.utils.data.TensorDataset(x, y), or a list of (x, y)")
    if not (hasattr(data, "__getitem__") and hasattr(data, "__len__")):
        raise refuse(
            "data",
            data,
            "it has no length or no [index], and every rank must reach every sample by its number",
            "pass a map-style dataset: an object with __len__ and __getitem__ (a list will do)",
        )
    try:
        samples = len(data)
    except TypeError as error:  # an iterable dataset inherits a __len__ that raises
        raise refuse("data", data, str(error), "pass a map-style dataset whose length is known") from None
    if samples == 0:
        raise refuse("data", data, "it is empty", "check the path it reads from")
    if samples < world_size:
        raise Refused(
            "dataset-small",
            f"cannot deal {samples} sample{'s' if samples > 1 else ''} to {world_size} ranks",
            "each rank needs at least one",
            "use more data or fewer ranks (--gpus cpu:1)",
        )
    return samples


def _is_columns(data: Any) -> bool:
    """A tuple of arrays as long as each other and longer than it: (x, y), where samples were meant."""
    shapes = [tuple(getattr(part, "shape", ())) for part in data] if isinstance(data, tuple) else []
    return len(shapes) > 1 and all(shape[:1] == shapes[0][:1] for shape in shapes) and shapes[0][:1] > (len(data),)


def check_data_signature(given: object) -> None:
    if given is not None and not isinstance(given, str):
        raise refuse("data_signature", given, "it is no text", 'name the data, e.g. data_signature="imagenet-2012 v3"')
