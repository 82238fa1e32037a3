"""Builds of torch: their names, where they are published, and which one the devices of a box ask for. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer

AUTO = "auto"
_NAME = re.compile(r"(cpu|cu\d{3}|rocm\d{1,2}(?:\.\d{1,2}){0,2})\Z")
_OLDEST_OF_CU128 = (7, 5)  # torch 2.8 and later: wheels for CUDA 12.8 and 13 begin at Turing, those for 12.6 at Maxwell
_NEWEST_OF_CU126 = (9, 0)
_ROCM = "rocm6.4"  # where the box does not say which ROCm it has: a wheel brings its own runtime


@dataclass(frozen=True)
class Build:
    """One build: `label` is cpu, cu128, rocm6.4 (or rocm64)."""

    label: str

    @property
    def variant(self) -> str:
        return f"precompiled/{self.label}"

    def index(self, base: str) -> str:
        """Where it is, below the address of an index that has one folder a build; "" for no address."""
        return f"{base.rstrip('/')}/{self._dotted}" if base else ""

    @property
    def _dotted(self) -> str:
        return re.sub(r"\Arocm(\d)(\d)\Z", r"rocm\1.\2", self.label)

    def is_(self, label: str) -> bool:
        """Whether a torch of that label is this build: "rocm6.4.1" is rocm6.4, too."""
        return f"{label}.".startswith(f"{self._dotted}.") if self.label.startswith("rocm") else label == self.label


def parse(name: str) -> Build:
    """Raises Refused with the names that there are."""
    label = name.removeprefix("precompiled/").lower()
    if name.startswith("builds/"):
        why = "it is a build of somebody's own, which no index holds"
        raise Refused("no-variant", f"cannot download {name}", why, "copy its folder to libtorch/builds/ on this box")
    if not _NAME.match(label):
        what = f"cannot download the libtorch variant {name!r}"
        raise Refused("no-variant", what, "there is no build of that name", "auto, cpu, cu126, cu128, cu130, rocm6.4 …")
    return Build(label)


def for_devices(offers: Iterable[DeviceOffer], driver: str, rocm: str) -> Build:
    """`driver`: the newest CUDA that the driver runs ("12.8"), `rocm`: the version installed ("6.4.1"); "" unknown.

    Raises Refused when no published build covers all.
    """
    devices = [offer for offer in offers if offer.kind != "cpu"]
    vendors = {offer.kind for offer in devices}
    if not devices:
        return Build("cpu")
    if len(vendors) > 1:
        why = "it has cards of two vendors, and one torch serves one"
        raise Refused("no-variant", "cannot choose a torch for this box", why, "name the devices of one: --devices 0,1")
    if vendors == {"rocm"}:
        found = re.match(r"\d+\.\d+", rocm)
        return Build(f"rocm{found[0]}" if found else _ROCM)
    return Build(_cuda(devices, driver))


def _cuda(devices: Sequence[DeviceOffer], driver: str) -> str:
    archs = [arch for device in devices if (arch := _capability(device.arch))]
    oldest, newest = min(archs, default=_OLDEST_OF_CU128), max(archs, default=_OLDEST_OF_CU128)
    what = "cannot choose a torch for this box"
    if oldest < _OLDEST_OF_CU128 and newest > _NEWEST_OF_CU126:
        why = f"no published build has code for both {_spoken(oldest)} and {_spoken(newest)}"
        raise Refused("no-variant", what, why, "offer cards of one kind (--devices), or build torch for both")
    major = int(driver.partition(".")[0]) if driver[:1].isdigit() else 12
    if major < 12:
        why = f"its driver runs CUDA up to {driver}, and the oldest build is for 12.6"
        raise Refused("old-driver", what, why, "bring the NVIDIA driver up to date")
    if oldest < _OLDEST_OF_CU128:
        return "cu126"
    return "cu130" if major >= 13 else "cu128"


def _capability(arch: str) -> tuple[int, int] | None:
    found = re.match(r"sm_?(\d+)(\d)", arch)
    return (int(found[1]), int(found[2])) if found else None


def _spoken(capability: tuple[int, int]) -> str:
    return "sm_{}{}".format(*capability)


def label_of(cuda: str | None, hip: str | None) -> str:
    """The label of a torch that says this of itself (torch.version): "cpu" for neither."""
    if hip:
        return "rocm" + ".".join(hip.split(".")[:3])
    return "cu" + "".join(cuda.split(".")[:2]) if cuda else "cpu"


def pip_words(torch: str, index: str | None, find_links: str | None) -> list[str]:
    """What stands behind `pip install`: the requirement and where to look. `torch`: a version, "" for the newest."""
    words = [f"torch=={torch}" if torch else "torch"]
    if index:
        words += ["--index-url", index]
    if find_links:
        words += ["--find-links", find_links]
    return words
