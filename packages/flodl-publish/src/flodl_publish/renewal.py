"""What of a worker's copy is still as its last fetch left it, and what has to come anew.

A listing of the tree comes first, and by it only what differs is asked for. So 20,000 files are asked for their stat
once, on this box alone and while the listing is under way; the box that serves them to fifty workers is asked for two.
"""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

from flodl_publish import copying, mirror
from flodl_publish.index import Index
from flodl_publish.sidecar import Listing


@dataclass
class Kept:
    """Files that are, to their stat, as they were when they were hashed."""

    hashes: dict[str, str] = field(default_factory=dict)
    executable: set[str] = field(default_factory=set)


def kept(root: Path, index: Index) -> Kept:
    """Of what lies below a link that stands where a folder was, nothing is."""
    found = Kept()
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return found
    try:
        bent = tuple(f"{path}/" for path in mirror.folders(index.hashes) if _is_link(path, folder))
        ask = os.stat
        for path, (size, mtime_ns, ctime_ns, inode, sha256) in index.hashes.items():
            try:
                seen = ask(path, dir_fd=folder, follow_symlinks=False)
            except OSError:
                continue
            if (
                seen.st_mtime_ns == mtime_ns
                and seen.st_ctime_ns == ctime_ns
                and seen.st_size == size
                and seen.st_ino == inode
                and not (bent and path.startswith(bent))
            ):
                found.hashes[path] = sha256
                if seen.st_mode & 0o111:
                    found.executable.add(path)
    finally:
        os.close(folder)
    return found


def missing(root: Path, listed: Listing, had: Kept, index: Index) -> list[str]:
    """The files of the listing that lie in `root` with another content, without their right to run, or not at all.

    What is unknown there is hashed, and so comes into `index`: a fetch after one that was killed asks for the rest.
    """
    differs = {path for path, _ in listed.files.items() - had.hashes.items()}
    differs |= (had.executable ^ listed.executable) & listed.files.keys()
    return [path for path in sorted(differs) if path in had.hashes or not _is_there(root, path, listed, index)]


def _is_there(root: Path, path: str, listed: Listing, index: Index) -> bool:
    whole = f"{root}/{path}"
    with contextlib.suppress(OSError):
        seen = os.lstat(whole)
        if stat.S_ISREG(seen.st_mode) and not any(above.is_symlink() for above in mirror.parents(root, path)):
            sha256 = copying.sha256_of(whole)
            index.put(path, copying.of_stat(seen), sha256)
            return sha256 == listed.files[path] and bool(seen.st_mode & 0o111) == (path in listed.executable)
    return False


def from_folder(source: Path, root: Path, paths: list[str], index: Index) -> None:
    """Copies them. What is no file there is left to the proof behind this."""
    made: set[str] = set()
    for path in paths:
        try:
            mode = os.lstat(f"{source}/{path}").st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if stat.S_ISREG(mode):
            mirror.make_room(root, path, made)
            sha256, _, copied = copying.copy(f"{source}/{path}", f"{root}/{path}", mode & 0o777)
            index.put(path, copied, sha256)


def _is_link(path: str, folder: int) -> bool:
    try:
        return stat.S_ISLNK(os.stat(path, dir_fd=folder, follow_symlinks=False).st_mode)
    except OSError:
        return False
