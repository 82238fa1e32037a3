"""CUDA toolkits that a container can hold: which cards each builds for, and the choice among them.

Cards by CUDA's release notes (what nvcc dropped and added); images are NVIDIA's own on Docker Hub. Rocky Linux 8
because its glibc, 2.28, is the one that torch's wheels ask for: the library then loads wherever torch does.
"""

from __future__ import annotations

from typing import NamedTuple

from flodl_ncclbuild import archs as cards
from flodl_wire.faults import Refused, usage

_MAXWELL_TO_HOPPER = frozenset({50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90})
_BLACKWELL = _MAXWELL_TO_HOPPER | {100, 101, 120}


class Toolkit(NamedTuple):
    cuda: str  # major.minor
    release: str  # as in the image's tag
    archs: frozenset[int]

    @property
    def image(self) -> str:
        return f"nvidia/cuda:{self.release}-devel-rockylinux8"


TOOLKITS = (
    Toolkit("11.8", "11.8.0", _MAXWELL_TO_HOPPER | {35, 37}),
    Toolkit("12.0", "12.0.1", _MAXWELL_TO_HOPPER),
    Toolkit("12.1", "12.1.1", _MAXWELL_TO_HOPPER),
    Toolkit("12.2", "12.2.2", _MAXWELL_TO_HOPPER),
    Toolkit("12.3", "12.3.2", _MAXWELL_TO_HOPPER),
    Toolkit("12.4", "12.4.1", _MAXWELL_TO_HOPPER),
    Toolkit("12.5", "12.5.1", _MAXWELL_TO_HOPPER),
    Toolkit("12.6", "12.6.3", _MAXWELL_TO_HOPPER),
    Toolkit("12.8", "12.8.1", _BLACKWELL),
    Toolkit("12.9", "12.9.1", _BLACKWELL | {103, 121}),
    Toolkit("13.0", "13.0.2", frozenset({75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121})),
)
APART = "build one library for each host, with --archs; only their versions must be equal"


class Choice(NamedTuple):
    toolkit: Toolkit
    note: str  # why it is not the one that torch was built with; empty when it is, or when nothing was asked


def named(cuda: str) -> Toolkit:
    """What `--cuda` says. Raises Refused (usage) with those there are."""
    for toolkit in TOOLKITS:
        if cuda in (toolkit.cuda, toolkit.release):
            return toolkit
    there = ", ".join(toolkit.cuda for toolkit in TOOLKITS)
    raise usage(f"cannot use --cuda {cuda!r}", f"this version has images for {there}", "e.g. --cuda 12.9")


def choose(archs: tuple[int, ...], *, asked: str | None = None, torch: str | None = None) -> Choice:
    """The toolkit that builds for all of `archs`.

    `asked` ("12.8") is an order: Refused when it cannot. `torch` ("12.8", or a major "12") is torch's own, taken when
    it can, else the newest of its major that can. Without either: CUDA 12 where it can, for it asks for the older
    driver. Raises Refused when no toolkit builds for all of them.
    """
    able = [toolkit for toolkit in TOOLKITS if toolkit.archs.issuperset(archs)]
    if asked is not None:
        toolkit = named(asked)
        others = ", ".join(other.cuda for other in able)
        fix = f"--cuda with one that builds them all: {others}" if able else APART
        cards.require(archs, toolkit.archs, f"CUDA {toolkit.cuda}", fix)
        return Choice(toolkit, "")
    if not able:
        raise Refused(
            "arch-not-buildable",
            f"cannot build NCCL for {cards.listed(archs)}",
            _nobody(archs),
            APART,
        )
    if torch is not None:
        return _near(torch, able, archs)
    twelve = [toolkit for toolkit in able if toolkit.cuda.startswith("12.")]
    return Choice((twelve or able)[-1], "")


def _near(torch: str, able: list[Toolkit], archs: tuple[int, ...]) -> Choice:
    for toolkit in able:
        if toolkit.cuda == torch:
            return Choice(toolkit, "")
    major, _, minor = torch.partition(".")
    same = [toolkit for toolkit in able if toolkit.cuda.split(".")[0] == major]
    chosen = (same or able)[-1]
    if not minor and same:
        return Choice(chosen, "")
    known = next((toolkit for toolkit in TOOLKITS if torch in (toolkit.cuda, toolkit.cuda.split(".")[0])), None)
    lacking = tuple(arch for arch in archs if known is not None and arch not in known.archs)
    why = f"cannot build {cards.listed(lacking)}" if lacking else "has no image in this version"
    driver = "" if same else "; the driver of each host must be new enough for it"
    return Choice(chosen, f"CUDA {chosen.cuda}, for torch's CUDA {torch} {why}{driver}")


def _nobody(archs: tuple[int, ...]) -> str:
    alone = [arch for arch in archs if not any(arch in toolkit.archs for toolkit in TOOLKITS)]
    if alone:
        return f"no CUDA toolkit known to this version builds {cards.listed(tuple(alone))}"
    spans = []
    for arch in archs:
        versions = [toolkit.cuda for toolkit in TOOLKITS if arch in toolkit.archs]
        spans.append(f"{cards.name(arch)} by CUDA {versions[0]}" + (f" to {versions[-1]}" if len(versions) > 1 else ""))
    return f"no CUDA toolkit builds them all: {', '.join(spans)}"
