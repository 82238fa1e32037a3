"""Makes a folder hold exactly a tree, touching only what differs."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from flodl_publish import copying
from flodl_publish.index import Index, now_ns
from flodl_publish.tree import OWN, FileStat, Tree

Contents = dict[str, FileStat | None]  # every path in a folder; None for what is no file


@dataclass
class Mirrored:
    hashes: dict[str, str] = field(default_factory=dict)  # path: sha256, of every file
    copied: int = 0
    removed: int = 0
    changed: bool = False  # anything at all


def mirror(source: Path, tree: Tree, target: Path, known: Index, ours: Index, *, strict: bool) -> Mirrored:
    """Copy what differs from `source` into `target`, in which links are never followed.

    `known` holds hashes of the source's files, `ours` those of the copies; both are brought up to date, also when this
    fails half-way. `strict`: whatever else lies in `target` goes; otherwise only what `ours` remembers.
    """
    done = Mirrored()
    target.mkdir(parents=True, exist_ok=True)
    there = contents(target) if strict else dict.fromkeys((*ours.hashes, *ours.others))
    wanted = _folders(tree)
    gone = [path for path in there if not (path in tree.files or path in tree.links or path in wanted or path in OWN)]
    for path in sorted(gone, reverse=True):  # what lies in a folder goes before the folder
        done.changed = True
        done.removed += _remove(target, path)
    ours.keep_only(tree.files)
    ours.others = [*tree.links, *tree.dirs]
    made: set[str] = set()
    started = now_ns()
    base, out = str(source) + "/", str(target) + "/"
    for path, found in tree.files.items():
        copy = there.get(path) if strict else _stat(out + path)
        sha256 = known.get(path, found)
        if (
            sha256 is not None
            and copy is not None
            and copy.mtime_ns == found.mtime_ns
            and copy.mode == found.mode
            and ours.get(path, copy) == sha256
        ):
            done.hashes[path] = sha256
            continue
        make_room(target, path, made)
        sha256, source_stat, copy_stat = copying.copy(base + path, out + path, found.mode)
        known.put_settled(path, source_stat, sha256, started)
        ours.put(path, copy_stat, sha256)
        done.hashes[path] = sha256
        done.copied += 1
        done.changed = True
    known.keep_only(tree.files)
    linked = place_links(tree, target, made)
    done.copied += linked
    done.changed = done.changed or bool(linked) or any(path not in there for path in tree.dirs)
    return done


def place_links(tree: Tree, target: Path, made: set[str]) -> int:
    """Links and empty folders, where they are not; how many links were made."""
    count = 0
    for path, link in tree.links.items():
        if _readlink(f"{target}/{path}") != link:
            make_room(target, path, made)
            os.symlink(link, f"{target}/{path}")  # noqa: PTH211 -- a Path would fold the target
            count += 1
    for path in tree.dirs:
        make_folder(target, path, made)
    return count


def forget(target: Path, tree: Tree, ours: Index) -> int:
    """Remove what `ours` remembers and the tree no longer has; whatever a build made stays."""
    gone = [path for path in (*ours.hashes, *ours.others) if not (path in tree.files or path in tree.links)]
    if not gone:
        return 0
    wanted = _folders(tree)
    return sum(_remove(target, path) for path in sorted(gone, reverse=True) if path not in wanted)


def clean(target: Path, tree: Tree, spared: Iterable[str] = (), since_ns: int = 0) -> int:
    """Remove whatever lies in `target` and is not of the tree; folders named in `spared` are left alone, and so is
    what has not been touched since `since_ns`.
    """
    wanted, kept = _folders(tree), set(spared)
    removed = 0
    for path in sorted(contents(target, kept), reverse=True):
        if path in tree.files or path in tree.links or path in wanted or path in OWN:
            continue
        if not since_ns or os.lstat(f"{target}/{path}").st_ctime_ns >= since_ns:
            removed += _remove(target, path)
    return removed


def folders(paths: Iterable[str]) -> set[str]:
    """The folders above `paths`."""
    found: set[str] = set()
    for path in paths:
        while (path := path.rpartition("/")[0]) and path not in found:
            found.add(path)
    return found


def _folders(tree: Tree) -> set[str]:
    return folders([*tree.files, *tree.links, *tree.dirs]).union(tree.dirs)


def contents(target: Path, spared: set[str] | None = None) -> Contents:
    """Every path in `target`; None for what is no file. Folders with a name of `spared` are not entered, nor named."""
    found: Contents = {}
    waiting = [""]
    base = str(target) + "/"
    while waiting:
        above = waiting.pop()
        with os.scandir(base + above) as entries:
            for entry in entries:
                path = above + entry.name
                if entry.is_dir(follow_symlinks=False):
                    if spared and (entry.name in spared or entry.name.endswith(".egg-info")):
                        continue
                    found[path] = None
                    waiting.append(path + "/")
                else:
                    seen = entry.stat(follow_symlinks=False)
                    found[path] = copying.of_stat(seen) if stat.S_ISREG(seen.st_mode) else None
    return found


def _stat(path: str) -> FileStat | None:
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return copying.of_stat(found) if stat.S_ISREG(found.st_mode) else None


def _readlink(path: str) -> str | None:
    try:
        return os.readlink(path)  # noqa: PTH115 -- a Path would fold a link's target
    except OSError:
        return None


def _remove(target: Path, path: str) -> int:
    """One file or link, or a folder with nothing left in it; a folder that holds a build stays."""
    whole = target / path
    try:
        if any(parent.is_symlink() for parent in parents(target, path)):
            return 0
        if whole.is_dir() and not whole.is_symlink():
            whole.rmdir()
            return 0
        whole.unlink()
    except OSError as err:
        if isinstance(err, (FileNotFoundError, NotADirectoryError)) or whole.is_dir():
            return 0
        raise
    with_folder = whole.parent
    while with_folder != target:  # empty folders go with their last file
        try:
            with_folder.rmdir()
        except OSError:
            break
        with_folder = with_folder.parent
    return 1


def parents(target: Path, path: str) -> list[Path]:
    parts = path.split("/")[:-1]
    return [target.joinpath(*parts[: count + 1]) for count in range(len(parts))]


def make_room(target: Path, path: str, made: set[str]) -> None:
    """Nothing at `path`, and real folders above it."""
    above = path.rpartition("/")[0]
    if above:
        make_folder(target, above, made)
    whole = f"{target}/{path}"
    try:
        os.unlink(whole)  # noqa: PTH108
    except FileNotFoundError:
        pass
    except (IsADirectoryError, PermissionError):
        import shutil  # felt in every start, and needed hardly ever

        shutil.rmtree(whole)


def make_folder(target: Path, path: str, made: set[str]) -> None:
    if path in made:
        return
    above = path.rpartition("/")[0]
    if above:
        make_folder(target, above, made)
    whole = target / path
    if whole.is_symlink() or (whole.exists() and not whole.is_dir()):
        whole.unlink()
    whole.mkdir(mode=0o755, exist_ok=True)
    made.add(path)
