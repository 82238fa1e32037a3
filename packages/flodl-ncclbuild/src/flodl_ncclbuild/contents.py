"""For which cards a library holds code: by `cuobjdump` where it is installed, else by reading its fat binaries.

A fat binary is a 16-byte header and entries one behind the other, each with its kind, its sizes and its architecture.
NVIDIA documents no layout; this one is what nvcc 13.0 writes (checked here), and what other readers of it describe.
"""

from __future__ import annotations

import mmap
import os
import re
import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

from flodl_wire import deadlines

PATIENCE = 120.0  # seconds; cuobjdump reads all of some 400 MB
_HEADER = struct.Struct("<IHHQ")  # magic, version, bytes of the header, bytes behind it
_ENTRY = struct.Struct("<HHIQ12xI")  # kind, flags, bytes of the entry's header, bytes behind it, …, architecture
_MAGIC = struct.pack("<I", 0xBA55ED50)
_PTX, _ELF = 1, 2


class Contents(NamedTuple):
    """`codes` run as they are on cards of that architecture; `ptx` is compiled by the driver for it and newer ones."""

    codes: tuple[int, ...]
    ptx: tuple[int, ...]
    told_by: str


def of(path: Path) -> Contents:
    tool = _cuobjdump()
    codes, ptx = (_listed(tool, "--list-elf", path), _listed(tool, "--list-ptx", path)) if tool else (None, None)
    if codes is None or ptx is None:
        return read(path)
    return Contents(codes, ptx, "cuobjdump")


def read(path: Path) -> Contents:
    """By the file's own bytes; both empty when it holds no fat binary."""
    found: dict[int, set[int]] = {_PTX: set(), _ELF: set()}
    with path.open("rb") as file:
        if not os.fstat(file.fileno()).st_size:
            return Contents((), (), "its fat binaries")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            at = data.find(_MAGIC)
            while at >= 0:
                at = data.find(_MAGIC, _entries(data, at, found))
    return Contents(tuple(sorted(found[_ELF])), tuple(sorted(found[_PTX])), "its fat binaries")


def _entries(data: mmap.mmap, start: int, found: dict[int, set[int]]) -> int:
    """Note the architectures of the fat binary at `start`; returns where the search goes on."""
    if start + _HEADER.size > len(data):
        return len(data)
    version: int
    header: int
    size: int
    _, version, header, size = _HEADER.unpack_from(data, start)
    at, end = start + header, start + header + size
    if version != 1 or header != _HEADER.size or end > len(data):
        return start + len(_MAGIC)  # four bytes that happen to look like one
    while at + _ENTRY.size <= end:
        kind, _, head, body, arch = _ENTRY.unpack_from(data, at)
        if head < _ENTRY.size or at + head + body > end:
            return start + len(_MAGIC)
        if kind in found and 10 <= arch < 1000:
            found[kind].add(arch)
        at += head + body
    return end


def _cuobjdump() -> str | None:
    for home in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if home and os.access(Path(home) / "bin" / "cuobjdump", os.X_OK):
            return str(Path(home) / "bin" / "cuobjdump")
    return shutil.which("cuobjdump")


def _listed(tool: str, what: str, path: Path) -> tuple[int, ...] | None:
    """The architectures in the names it lists (`ELF file 1: x.sm_75.cubin`); None when it fails."""
    try:
        answer = subprocess.run(
            [tool, what, str(path.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadlines.deadline(PATIENCE),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if answer.returncode:
        return None
    return tuple(sorted({int(arch) for arch in re.findall(rb"\bsm_(\d+)", answer.stdout)}))
