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
from pathlib import Path

from flodl_publish.tree import FileStat

VERSION = 1
# A file changed within one tick of the kernel's clock after we read it keeps its times (git calls such entries racy).
TICK_NS = 20_000_000


class Index:
    """`hashes`: path → (size, mtime_ns, ctime_ns, ino, sha256). `others`: links and folders that we made."""

    def __init__(self) -> None:
        self.hashes: dict[str, list[int | str]] = {}
        self.others: list[str] = []

    @classmethod
    def load(cls, file: Path) -> Index:
        """An empty one when there is none, or none that can be believed."""
        index = cls()
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            document = json.loads(file.read_bytes())
            if document["v"] == VERSION:
                index.hashes, index.others = document["hashes"], document["others"]
                if document["boot"] != _boot():
                    index.hashes = {path: [-1, 0, 0, 0, ""] for path in index.hashes}
        return index

    def save(self, file: Path) -> None:
        document = {"v": VERSION, "boot": _boot(), "hashes": self.hashes, "others": self.others}
        # not synced: after a power loss it is of another boot
        write_whole(file, json.dumps(document, separators=(",", ":")).encode(), sync=False)

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
        return str(entry[4])

    def put(self, path: str, found: FileStat, sha256: str) -> None:
        self.hashes[path] = [found.size, found.mtime_ns, found.ctime_ns, found.ino, sha256]

    def put_settled(self, path: str, found: FileStat, sha256: str, read_at_ns: int) -> None:
        """For files that others write: one that changed just before it was read is not believed next time."""
        if max(found.ctime_ns, found.mtime_ns) < read_at_ns - TICK_NS:
            self.put(path, found, sha256)
        else:
            self.hashes.pop(path, None)

    def keep_only(self, paths: dict[str, FileStat]) -> None:
        if len(self.hashes) != len(paths) or self.hashes.keys() != paths.keys():
            self.hashes = {path: entry for path, entry in self.hashes.items() if path in paths}


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
