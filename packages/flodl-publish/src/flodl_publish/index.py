"""The hashes of files we have read, kept by size, times and inode as git's index does: an unchanged file is only asked
for its stat.

Of an index of another boot only the names are believed: what was in the page cache when the power went may not be on
the disk.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from array import array
from collections.abc import Sequence
from pathlib import Path

from flodl_publish.tree import FileStat

VERSION = 2
INDEX = "tree.index"  # of the tree in a place, beside it
Entry = tuple[int, int, int, int, str]
_UNKNOWN: Entry = (-1, 0, 0, 0, "-" * 64)  # of no file
# A file changed within one tick of the kernel's clock after we read it keeps its times (git calls such entries racy).
TICK_NS = 20_000_000


class Index:
    """`hashes`: path → (size, mtime_ns, ctime_ns, ino, sha256). `others`: links and folders that we made.

    The file is a line of JSON, the paths, and the columns one after another: of 20,000 entries that is read and written
    in a few milliseconds, where JSON for all of it takes twenty.
    """

    def __init__(self) -> None:
        self.hashes: dict[str, Entry] = {}
        self.others: list[str] = []

    @classmethod
    def load(cls, file: Path) -> Index:
        """An empty one when there is none, or none that can be believed."""
        index = cls()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            line, _, body = file.read_bytes().partition(b"\n")
            head = json.loads(line)
            if head["v"] == VERSION:
                index.hashes, index.others = _parsed(body, head["entries"], head["others"])
                if head["boot"] != _boot():
                    index.hashes = dict.fromkeys(index.hashes, _UNKNOWN)
        return index

    def save(self, file: Path) -> None:
        names, columns = _names(self.hashes), list(zip(*self.hashes.values(), strict=True)) or [()] * 5
        head = {"v": VERSION, "boot": _boot(), "entries": len(self.hashes), "others": len(self.others)}
        parts = [json.dumps(head).encode(), b"\n", *(array("q", column).tobytes() for column in columns[:3])]
        parts += [array("Q", columns[3]).tobytes(), "".join(columns[4]).encode("ascii"), names, _names(self.others)]
        write_whole(file, b"".join(parts), sync=False)  # after a power loss it is of another boot

    def get(self, path: str, found: FileStat) -> str | None:
        entry = self.hashes.get(path)
        if (
            entry is None
            or entry[1] != found[1]
            or entry[2] != found[2]
            or entry[0] != found[0]
            or entry[3] != found[3]
        ):
            return None
        return entry[4]

    def put(self, path: str, found: FileStat, sha256: str) -> None:
        self.hashes[path] = (found.size, found.mtime_ns, found.ctime_ns, found.ino, sha256)

    def put_settled(self, path: str, found: FileStat, sha256: str, read_at_ns: int) -> None:
        """For files that others write: one that changed just before it was read is not believed next time."""
        if max(found.ctime_ns, found.mtime_ns) < read_at_ns - TICK_NS:
            self.put(path, found, sha256)
        else:
            self.hashes.pop(path, None)

    def keep_only(self, paths: dict[str, FileStat]) -> None:
        if len(self.hashes) != len(paths) or self.hashes.keys() != paths.keys():
            self.hashes = {path: entry for path, entry in self.hashes.items() if path in paths}


def _names(paths: Sequence[str] | dict[str, Entry]) -> bytes:
    return os.fsencode("".join(f"{path}\0" for path in paths))


def _parsed(body: bytes, entries: int, others: int) -> tuple[dict[str, Entry], list[str]]:
    """Raises ValueError when it is not as long as it says."""
    columns = []
    for kind in "qqqQ":
        columns.append(array(kind, body[: 8 * entries]))
        body = body[8 * entries :]
    hashes, names = body[: 64 * entries].decode("ascii"), os.fsdecode(body[64 * entries :]).split("\0")
    if len(names) != entries + others + 1 or names.pop():
        raise ValueError("it is cut off")
    cut = [hashes[at : at + 64] for at in range(0, 64 * entries, 64)]
    return dict(zip(names, zip(*columns, cut, strict=True), strict=False)), names[entries:]


def write_whole(file: Path, data: bytes, *, sync: bool = True) -> None:
    """All of it under its name, or nothing: temp file, fsync, rename, fsync of the folder."""
    scratch = file.with_name(f"{file.name}.{os.getpid()}.part")
    try:
        with scratch.open("wb") as out:
            out.write(data)
            if sync:
                out.flush()
                os.fsync(out.fileno())
        scratch.replace(file)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(file.parent)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def now_ns() -> int:
    """The clock that file times are taken from."""
    return time.time_ns()


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
