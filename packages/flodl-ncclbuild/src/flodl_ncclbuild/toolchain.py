"""The CUDA toolkit of this box: where it is, its version, and the cards it builds for, by its own word."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from flodl_ncclbuild.toolkits import TOOLKITS
from flodl_wire import deadlines
from flodl_wire.faults import Refused

USUAL = Path("/usr/local/cuda")
PATIENCE = 30.0  # seconds for one answer of nvcc, from a cold network disk
NEEDED = {"make": "make", "g++": "g++", "python3": "python3"}  # NCCL's makefiles run all three
GET = "install a CUDA toolkit and set CUDA_HOME to it, or build in Docker (leave out --native)"


class Toolchain(NamedTuple):
    home: Path
    version: str  # major.minor
    archs: frozenset[int]


def find() -> Toolchain:
    """CUDA_HOME of the environment, else the nvcc on PATH, else /usr/local/cuda. Raises Refused when none is whole."""
    stated = os.environ.get("CUDA_HOME")
    if stated:
        if not is_toolkit(Path(stated)):
            why = "it holds no bin/nvcc with include/cuda_runtime.h"
            raise Refused("no-toolkit", f"cannot use CUDA_HOME={stated}", why, "unset it, or set it to a CUDA toolkit")
        return look(Path(stated).absolute())
    looked = []
    on_path = shutil.which("nvcc")
    if on_path is not None:
        home = home_of(on_path)
        if home is not None:
            return look(home)
        looked.append(f"{on_path} belongs to no toolkit with include/cuda_runtime.h")
    if is_toolkit(USUAL):
        return look(USUAL)
    looked.append(f"nothing at {USUAL}")
    if on_path is None:
        looked.insert(0, "no nvcc on PATH")
    raise Refused("no-toolkit", "cannot build natively", f"CUDA_HOME is not set, {', '.join(looked)}", GET)


def is_toolkit(home: Path) -> bool:
    return os.access(home / "bin" / "nvcc", os.X_OK) and (home / "include" / "cuda_runtime.h").is_file()


def home_of(nvcc: str) -> Path | None:
    """The toolkit of an nvcc. A wrapper script lies elsewhere; its dry run says where the real one is."""
    beside = Path(nvcc).resolve().parent.parent
    if is_toolkit(beside):
        return beside
    said = re.search(r"^#\$ _HERE_=(.+)$", _ask(nvcc, "--dryrun", "-x", "cu", os.devnull), re.MULTILINE)
    home = Path(said[1].strip()).parent if said else None
    return home if home is not None and is_toolkit(home) else None


def look(home: Path) -> Toolchain:
    """What the nvcc of `home` says of itself; one that cannot list its cards (before 11.5) is looked up."""
    nvcc = str(home / "bin" / "nvcc")
    release = re.search(r"release (\d+\.\d+)", _ask(nvcc, "--version"))
    if release is None:
        raise Refused("no-toolkit", f"cannot use {nvcc}", "it does not say its version", GET)
    codes = {int(code) for code in re.findall(r"\bsm_(\d+)\b", _ask(nvcc, "--list-gpu-code"))}
    if not codes:
        codes = next((set(toolkit.archs) for toolkit in TOOLKITS if toolkit.cuda == release[1]), codes)
    return Toolchain(home, release[1], frozenset(codes))


def require_tools(*, git: bool) -> None:
    """Raises Refused naming what make needs and this box lacks."""
    wanted = {**NEEDED, **({"git": "git"} if git else {})}
    missing = [package for program, package in wanted.items() if shutil.which(program) is None]
    if missing:
        names = " ".join(missing)
        fix = f"apt install {names} (Debian, Ubuntu), dnf install {names.replace('g++', 'gcc-c++')} (Fedora, RHEL)"
        raise Refused("no-tool", "cannot build natively", f"{', '.join(missing)} not found on PATH", fix)


def _ask(nvcc: str, *words: str) -> str:
    """Its answer, both streams; empty when it gives none."""
    try:
        answer = subprocess.run(
            [nvcc, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=deadlines.deadline(PATIENCE),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (answer.stdout + b"\n" + answer.stderr).decode("utf-8", "replace")
