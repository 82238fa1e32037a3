"""GPU architectures by their numbers: 61 is compute capability 6.1, spelled `sm61` in paths and `sm_61` by nvcc."""

from __future__ import annotations

import re

from flodl_wire.faults import Refused, usage

_DOTTED = re.compile(r"(\d{1,2})\.(\d)", re.ASCII)
_PLAIN = re.compile(r"(?:sm_?|compute_?)?(\d{2,3})", re.ASCII)


def parse(text: str) -> tuple[int, ...]:
    """What `--archs` says: "6.1;12.0", "sm61,sm120", "61 120"; ascending, each once. Raises Refused (usage)."""
    found = set()
    for word in re.split(r"[;,\s]+", text.strip()):
        if word:
            found.add(number(word))
    if not found:
        raise usage("cannot use --archs ''", "it names no architecture", 'e.g. --archs "6.1;12.0"')
    return tuple(sorted(found))


def number(word: str) -> int:
    """One architecture; torch's "12.0+PTX" is 120 as well. Raises Refused (usage)."""
    bare = re.sub(r"\+ptx$", "", word.lower())
    dotted, plain = _DOTTED.fullmatch(bare), _PLAIN.fullmatch(bare)
    if dotted:
        return int(dotted[1]) * 10 + int(dotted[2])
    if plain:
        return int(plain[1])
    if bare.startswith("gfx"):
        raise usage(f"cannot build NCCL for {word!r}", "that is an AMD card: it uses RCCL, which comes with ROCm")
    raise usage(f"cannot use {word!r} as an architecture", "it is no compute capability", "e.g. 6.1, sm61 or 61")


def name(arch: int) -> str:
    return f"sm{arch}"


def spelled(archs: tuple[int, ...]) -> str:
    """As in the folder of a build: `sm61-sm120`."""
    return "-".join(name(arch) for arch in archs)


def listed(archs: tuple[int, ...]) -> str:
    """For people: `sm61, sm120`."""
    return ", ".join(name(arch) for arch in archs)


def gencode(archs: tuple[int, ...]) -> str:
    """nvcc's flags: machine code for each, and PTX of the last, from which drivers compile for cards that are newer."""
    flags = [f"-gencode=arch=compute_{arch},code=sm_{arch}" for arch in archs]
    return " ".join([*flags, f"-gencode=arch=compute_{archs[-1]},code=compute_{archs[-1]}"])


def require(archs: tuple[int, ...], can: frozenset[int], who: str, fix: str) -> None:
    """Raises Refused naming those of `archs` that `who` cannot build, and those that it can."""
    lacking = tuple(arch for arch in archs if arch not in can)
    if lacking:
        why = f"{who} cannot build {listed(lacking)}; it can build {listed(tuple(sorted(can)))}"
        raise Refused("arch-not-buildable", f"cannot build NCCL for {listed(archs)}", why, fix)
