"""What binds a cohort: one vendor, one run, one NCCL, one model, one data set. Pure.

Each is taken from the controller where it knows it, else from the first member that has it, and goes with the last
member that brought it. The order of the checks is the reference's (§2.2).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from flodl_wire.faults import Refused
from flodl_wire.join_messages import Hello

Refuse = Callable[[str, str, str], Refused]  # code, why, fix

_NVIDIA = re.compile(r"(^|[/_-])(cu\d|cuda|sm_?\d)", re.IGNORECASE)
_AMD = re.compile(r"(^|[/_-])(rocm|hip|gfx\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Cohort:
    """What this run is, as far as the controller itself knows; None or "" gates nothing."""

    nccl: bool = False
    mode: str = "cpu_cadence"
    manifest_hash: str = ""
    run_id: str = ""
    model_sig: str = ""
    dataset_sig: str = ""
    args: list[str] | None = None  # a walk-in's own arguments must equal these


@dataclass
class Seeds:
    """`bound`: what → (value, who brought it)."""

    cohort: Cohort
    bound: dict[str, tuple[str, str]] = field(default_factory=dict)

    def derive(self, hellos: Iterable[Hello]) -> None:
        """Anew, from the controller's own knowledge and the members that are in."""
        own = {
            "run": self.cohort.run_id,
            "model": given(self.cohort.model_sig),
            "dataset": given(self.cohort.dataset_sig),
        }
        self.bound = {what: (value, "the controller") for what, value in own.items() if value}
        for hello in hellos:
            self.take(hello)

    def take(self, hello: Hello) -> None:
        """A member is in: it binds what nobody has bound yet."""
        for what, value in self._brought(hello).items():
            if value:
                self.bound.setdefault(what, (value, hello.host))

    def check(self, hello: Hello, refuse: Refuse, label_of: Callable[[str], str]) -> None:
        """Raise Refused for the first thing that differs. `label_of`: a member's libtorch."""
        brought = self._brought(hello)
        if other := self._differs("dataset", brought["dataset"]):
            raise refuse(
                "dataset-differs",
                f"its data are not those of {other[1]} ({brought['dataset'][:8]} against {other[0][:8]})",
                "give every host the same data",
            )
        if other := self._differs("vendor", brought["vendor"]):
            raise refuse(
                "vendors-mixed",
                f"it runs {hello.libtorch or brought['vendor']}, the cohort runs {label_of(other[1]) or other[0]}; "
                "NCCL cannot mix vendors",
                "use one vendor, or a mode that can mix: cpu_sync, cpu_cadence",
            )
        if other := self._differs("collective", brought["collective"]):
            raise refuse(
                "mode-needs-gpus",
                f"its ranks would talk {brought['collective']}, those of {other[1]} talk {other[0]}: in mode "
                f"{self.cohort.mode} all have GPUs, or none has",
                "offer GPUs, or run mode cpu_cadence",
            )
        if other := self._differs("run", brought["run"]):
            raise refuse(
                "run-differs",
                f"it holds run {hello.run_id[:8]}, {other[1]} holds {other[0][:8]}",
                "the stale side takes the new run when it dials again",
            )
        if other := self._differs("nccl", brought["nccl"]):
            raise refuse(
                "nccl-differs",
                f"it has NCCL {brought['nccl']}, {other[1]} has {other[0]}; NCCL does not talk across major.minor",
                "build one for both with fdl nccl build",
            )
        if other := self._differs("model", brought["model"]):
            raise refuse(
                "model-differs",
                f"its model is not that of {other[1]} ({brought['model'][:8]} against {other[0][:8]})",
                "it runs a stale tree or another program: bring it to the same version",
            )

    def _brought(self, hello: Hello) -> dict[str, str]:
        nccl = self.cohort.nccl
        return {
            "dataset": given(hello.dataset_sig),
            "vendor": classify(hello) if nccl else "",
            "collective": _collective(hello) if nccl else "",
            "run": hello.run_id,
            "nccl": ".".join(map(str, hello.nccl_version[:2])) if nccl and hello.nccl_version else "",
            "model": given(hello.model_sig),
        }

    def _differs(self, what: str, value: str) -> tuple[str, str] | None:
        seed = self.bound.get(what)
        return seed if value and seed is not None and seed[0] != value else None


def classify(hello: Hello) -> str:
    """The vendor of a host's GPUs: "nvidia", "amd", or "" where nothing says (a cpu label is no vendor)."""
    kinds = {device.kind for device in hello.devices}
    if "cuda" in kinds and not _AMD.search(hello.libtorch):
        return "nvidia"
    if "rocm" in kinds:
        return "amd"
    if _AMD.search(hello.libtorch):
        return "amd"
    if _NVIDIA.search(hello.libtorch):
        return "nvidia"
    return ""


def given(sig: str) -> str:
    """A signature, or "" when it is blank or the zeros that mean "not supplied"."""
    return sig if sig.strip("0") else ""


def _collective(hello: Hello) -> str:
    """What a host's ranks would use in an nccl mode."""
    return "gloo" if any(device.kind == "cpu" for device in hello.devices) else "nccl"
