"""Which libnccl a rank would load, by the loader's own order, and what version it is (by asking it, in a child)."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping
from pathlib import Path

from flodl_probe.child_answer import NoAnswer, from_child
from flodl_probe.facts import Libtorch, NcclLibrary, TorchBuild
from flodl_wire import deadlines

NAMES = ("libnccl.so.2", "libnccl.so")
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
    "/usr/local/cuda/lib64",
    "/opt/nccl/lib",
)
_PATIENCE = 15.0


def read(
    env: Mapping[str, str], torch: TorchBuild | None, libtorch: Libtorch | None, folders: Iterable[str] = FOLDERS
) -> list[NcclLibrary]:
    """Every libnccl found, the one that would be loaded first. A preloaded one that is missing is listed as well: the
    loader only warns and goes on without it.
    """
    found = [NcclLibrary(path, source) for path, source in _places(env, torch, libtorch, folders)]
    for library in found:
        library.version, library.why = version(library.path)
    return found


def _places(
    env: Mapping[str, str], torch: TorchBuild | None, libtorch: Libtorch | None, folders: Iterable[str]
) -> list[tuple[str, str]]:
    places = [
        (entry, "LD_PRELOAD")
        for entry in env.get("LD_PRELOAD", "").replace(":", " ").split()
        if "libnccl" in entry.rpartition("/")[2]
    ]
    searched = [(f"{libtorch.path}/lib", "libtorch")] if libtorch else []
    if torch:  # torch's own libraries look here first (RPATH)
        searched.append((f"{torch.site}/nvidia/nccl/lib", "torch"))
    searched += [(entry, "LD_LIBRARY_PATH") for entry in env.get("LD_LIBRARY_PATH", "").split(":") if entry]
    searched += [(folder, "system") for folder in folders]
    seen = {_real(path) for path, _ in places}
    for folder, source in searched:
        path = next((Path(folder, name) for name in NAMES if Path(folder, name).exists()), None)
        if path is not None and _real(path) not in seen:
            seen.add(_real(path))
            places.append((str(path), source))
    return places


def version(path: str) -> tuple[str | None, str]:
    """("2.27.5", "") or (None, why not)."""
    if not Path(path).exists():
        return None, "there is no such file"
    try:
        return spelled(int(from_child(lambda: _ask(path), deadlines.deadline(_PATIENCE)))), ""
    except (NoAnswer, ValueError) as err:
        return None, f"loading it {err}"


def _ask(path: str) -> int:
    number = ctypes.c_int()
    code = ctypes.CDLL(path).ncclGetVersion(ctypes.byref(number))
    if code:
        raise ValueError(f"ncclGetVersion says {code}")
    return number.value


def spelled(code: int) -> str:
    """22705 is 2.27.5, 2708 is 2.7.8: NCCL_VERSION changed its base with 2.9."""
    base = 10000 if code >= 10000 else 1000
    return f"{code // base}.{code % base // 100}.{code % 100}"


def _real(path: str | Path) -> str:
    return str(Path(path).resolve())
