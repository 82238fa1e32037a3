"""Checkpoints as files: where a run leaves them, what is meant by the words for one, and whether a file is whole.

The window asks before it starts any host, the hub and a script alone before they read one; so a name that nothing
stands behind is refused once and in the same words. Whether model and data fit only the latter two can tell.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flodl_wire.faults import Broken, Fault, Refused

NAME = "checkpoint.safetensors"
PREVIOUS = "checkpoint.previous.safetensors"  # the one before; used where NAME cannot be read
CURSOR = "flodl"  # the key of a file's metadata that says where training stood
VERSION = 1  # of what stands there, its key "v"

AUTO, LATEST, NEVER = "auto", "latest", "never"

LARGEST_HEADER = 64 * 1024 * 1024  # bytes; a model of 500,000 tensors has less


def check(said: str, runs: Path) -> None:
    """Raise Refused or Broken for what no run below `runs` could go on from, as far as the files tell. `auto` and
    `never` can always begin anew.
    """
    if said in (AUTO, NEVER, ""):
        return
    if said == LATEST:
        folder = next((folder for folder in runs_of(runs) if files_in(folder)), None)
        if folder is None:
            raise none_left(runs)
        with advised(folder, runs):
            _check_folder(folder)
        return
    place = place_of(said, runs)
    with advised(place, runs):
        if place.is_dir():
            _check_folder(place)
        else:
            _check_file(place)


# folders and words


def runs_of(runs: Path, own: str = "") -> list[Path]:
    """The folders of runs but `own`, the newest first: their names begin with the second they were made in."""
    try:
        folders = [path for path in runs.iterdir() if path.is_dir() and not path.is_symlink() and path.name != own]
        return sorted(folders, key=lambda path: (path.name[:15], path.stat().st_mtime_ns), reverse=True)
    except OSError:
        return []


def files_in(folder: Path) -> list[Path]:
    """The checkpoints that a run's folder holds, of use or not, the newer one first."""
    return [path for path in (folder / NAME, folder / PREVIOUS) if path.exists()]


def place_of(said: str, runs: Path) -> Path:
    """The file or folder that `said` names: a path, or a run below `runs`. Raises Refused where there is none."""
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, nobody's home
        for place in (Path(said).expanduser(), runs / said):
            if place.exists():
                return place
    raise Refused(
        "no-checkpoint",
        f"cannot resume from {said}",
        f"there is no such file or folder, and no run of that name below {runs}",
        _instead(said, runs),
    )


def none_left(runs: Path) -> Refused:
    return Refused(
        "no-checkpoint",
        "cannot resume the last run",
        f"no run below {runs} left a checkpoint",
        "begin anew without resume, or name a checkpoint by its path",
    )


def none_in(folder: Path) -> Refused:
    return Refused("no-checkpoint", f"cannot resume from {folder}", f"it holds no {NAME}")


@contextlib.contextmanager
def advised(place: Path, runs: Path) -> Iterator[None]:
    """A fault of the checkpoint at `place` that has no fix of its own says which others there are."""
    try:
        yield
    except Fault as fault:
        if fault.fix:
            raise
        raise type(fault)(fault.code, fault.what, fault.why, _others(place, runs)) from None


def _instead(said: str, runs: Path) -> str:
    """What somebody may have meant who named something that is not there."""
    known = [folder.name for folder in runs_of(runs) if files_in(folder) and folder.name != said]
    close = difflib.get_close_matches(said, [*known, AUTO, LATEST, NEVER], 1, 0.8)
    return f"did you mean {close[0]}?" if close else _others(Path(said), runs)


def _others(place: Path, runs: Path) -> str:
    """What may be named instead of this run's folder, or of the checkpoint in it."""
    own = (place.name, place.parent.name)
    known = [folder.name for folder in runs_of(runs) if files_in(folder) and folder.name not in own]
    if not known:
        return "name a checkpoint by its path, or begin anew without resume"
    return f"the last runs that left a checkpoint are {', '.join(known[:3])}"


# files


def open_file(path: Path) -> Any:
    """A checkpoint's file for reading. Raises Broken (bad-file)."""
    try:
        return path.open("rb")
    except OSError as err:
        raise Broken("bad-file", f"cannot use {path}", err.strerror or str(err)) from None


def read_header(descriptor: int, name: str) -> tuple[dict[str, Any], int]:
    """The header of the safetensors file that is open as `descriptor`, and where the tensors' bytes begin behind it;
    `name` is for the error. Raises Broken (bad-file) for one that is cut short or is no such file, and never costs
    more memory than a header may.
    """
    size = os.fstat(descriptor).st_size
    length = int.from_bytes(os.pread(descriptor, 8, 0), "little")
    if size < 8 or length > min(size - 8, LARGEST_HEADER):
        raise _bad(name, "it is cut short, or no safetensors file")
    try:
        header = json.loads(os.pread(descriptor, length, 8))
        stops = [entry["data_offsets"][1] for key, entry in header.items() if key != "__metadata__"]
        whole = 8 + length + int(max(stops, default=0))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError, OverflowError) as err:
        raise _bad(name, f"its header cannot be read ({type(err).__name__}: {err})"[:200]) from None
    if size < whole:
        raise _bad(name, f"it is cut short: {size:,} of {whole:,} bytes")
    return header, 8 + length


def cursor_of(metadata: Any, name: str) -> str:
    """Where training stood, as JSON. Raises Broken (bad-file) where a file's metadata do not say it, and Refused
    (newer-file) where a later flodl said it.
    """
    text = metadata.get(CURSOR) if isinstance(metadata, dict) else None
    if text is None:
        raise Broken("bad-file", f"cannot resume from {name}", "it holds a model, but not where training stood")
    said: Any = None
    with contextlib.suppress(ValueError, RecursionError):  # who reads it whole says what it is then
        said = json.loads(str(text))
    version = said.get("v", VERSION) if isinstance(said, dict) else VERSION
    if isinstance(version, int) and version > VERSION:
        why = f"a newer flodl wrote it: format {version}, and this one reads up to {VERSION}"
        raise Refused(
            "newer-file", f"cannot resume from {name}", why, "install the flodl that wrote it, or a later one"
        )
    return str(text)


def goes_on(folder: Path) -> bool:
    """Whether a run can go on from what this folder holds: a checkpoint of use, with epochs left to do."""
    for path in files_in(folder):
        with contextlib.suppress(Fault, OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            with open_file(path) as file:
                header, _ = read_header(file.fileno(), str(path))
            cursor = json.loads(cursor_of(header.get("__metadata__"), str(path)))
            return bool(cursor["epoch"] < cursor["epochs"])
    return False


def _check_folder(folder: Path) -> None:
    first: Fault | None = None
    for path in files_in(folder):
        try:
            return _check_file(path)
        except Broken as fault:
            first = first or fault
    raise first or none_in(folder)


def _check_file(path: Path) -> None:
    with open_file(path) as file:
        header, _ = read_header(file.fileno(), str(path))
    cursor_of(header.get("__metadata__"), str(path))


def _bad(name: str, why: str) -> Broken:
    return Broken("bad-file", f"cannot use {name}", why)
