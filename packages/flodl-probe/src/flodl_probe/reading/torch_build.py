"""A torch wheel by what lies in its folder. Nothing of it is imported: that costs seconds, and a broken one crashes."""

from __future__ import annotations

import mmap
import re
import sys
from pathlib import Path

from flodl_probe.facts import TorchBuild

_MARK = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*['\"]([^'\"]*)['\"]", re.MULTILINE)
_NCCL = re.compile(r"^Requires-Dist:\s*nvidia-nccl-cu\d+\s*\(?==\s*([0-9.]+)", re.MULTILINE)
_TAG = re.compile(r"^Tag:\s*(\S+?)-\S+?-(\S+)", re.MULTILINE)
_GLIBC = re.compile(r"manylinux_(\d+)_(\d+)_")
# What torch.cuda.get_arch_list() returns is one constant of libtorch_python.so (torch/csrc/cuda/Module.cpp,
# CUDA_ARCH_FLAGS): "sm_75 sm_80 … compute_120" or "gfx90a gfx942".
_TOKEN = rb"(?:(?:sm|compute)_\d+[af]?|gfx[0-9a-f]+)"
_FLAGS = re.compile(rb"\0(?=(" + _TOKEN + rb"(?: " + _TOKEN + rb")*)\0)")


def find(project: Path | None) -> TorchBuild | None:
    """The torch that a rank of `project` imports: of the project's own environment, else of this Python."""
    if project is not None:
        folders = sorted(project.glob(".venv/lib/python3*/site-packages"))
        if folders and (project / ".venv/bin/python").exists():
            return next((found for folder in folders if (found := read(folder))), None)
    for entry in sys.path:
        found = read(Path(entry)) if entry else None
        if found:
            return found
    return None


def read(site: Path, source: str = "environment") -> TorchBuild | None:
    """The torch installed in `site`; None when there is none. Damaged metadata leaves None in what it would tell."""
    if not (site / "torch/version.py").is_file():
        return None
    metadata = next(iter(sorted(site.glob("torch-*.dist-info"))), None)
    text = _text(metadata / "METADATA") if metadata else ""
    wheel = _text(metadata / "WHEEL") if metadata else ""
    marks = dict(_MARK.findall(_text(site / "torch/version.py")))
    named = re.search(r"^Version:\s*(\S+)", text, re.MULTILINE) or re.search(
        r"__version__ = '([^']+)'", _text(site / "torch/version.py")
    )
    tag = _TAG.search(wheel)
    glibc = _GLIBC.search(tag[2]) if tag else None
    nccl = _NCCL.search(text)
    gpu = bool(marks.get("cuda") or marks.get("hip"))
    return TorchBuild(
        version=named[1] if named else "",
        site=str(site),
        source=source,
        cuda=marks.get("cuda") or None,
        hip=marks.get("hip") or None,
        archs=_archs(site / "torch/lib/libtorch_python.so") if gpu else None,
        nccl=nccl[1] if nccl else None,
        python_tag=tag[1] if tag else None,
        glibc=f"{glibc[1]}.{glibc[2]}" if glibc else None,
    )


def _archs(library: Path) -> list[str] | None:
    try:
        with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found = max(_FLAGS.findall(data), key=len, default=None)
    except (OSError, ValueError):
        return None
    return found.decode().split() if found else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
