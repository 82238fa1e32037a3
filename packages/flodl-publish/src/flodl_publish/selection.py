"""What of a source folder travels: git's own answer in a git work tree, else everything but environments and builds."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

from flodl_publish import standing
from flodl_publish.tree import BUILT, BUILT_AT_ROOT, OWN, FileStat, LeftOut, Tree, drop_leaving_links
from flodl_wire.faults import Refused

_KINDS = {stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFBLK: "a device", stat.S_IFCHR: "a device"}


def select(root: Path) -> Tree:
    """Raises Refused when `root` is no readable folder, or git will not answer."""
    if not root.is_dir():
        why = "it is a file, and a source is a folder" if root.is_file() else "there is no such folder"
        raise Refused("no-source", f"cannot publish {root}", why)
    tree = Tree()
    if _in_work_tree(root):
        tree.by = "git"
        _by_git(root, "", tree)
    else:
        _by_walk(root, "", tree, "")
    drop_leaving_links(tree)
    return tree


def is_built(path: str) -> str:
    """The part of `path` (a folder's) that says it is an environment, a cache or a build; "" for none."""
    parts = path.split("/")
    if parts[0] in BUILT_AT_ROOT:
        return parts[0]
    return next((part for part in parts if part in BUILT or part.endswith(".egg-info")), "")


def git(root: Path, *words: str, check: bool = True) -> bytes:
    """git's stdout. Its variables (set in hooks) would point it at another repository."""
    process = _begin_git(root, *words)
    out, err = process.communicate()
    if process.returncode and check:
        said = err.decode("utf-8", "replace").strip().splitlines()
        raise Refused("git-failed", f"cannot list {root}", "git says: " + (said[0] if said else "nothing"))
    return out if not process.returncode else b""


def _begin_git(root: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["git", "-C", str(root), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=standing.environment(),
    )


def ignore_rule(root: Path, path: str) -> str:
    """The rule that keeps `path` out, as "file:line:pattern"; "" when git keeps no rule against it."""
    said = os.fsdecode(git(root, "check-ignore", "-v", "--", path, check=False))
    return said.partition("\t")[0] if "\t" in said else ""


def _in_work_tree(root: Path) -> bool:
    """False also where an enclosing repository ignores the whole folder: its answer would be "nothing"."""
    try:
        known = (root / ".git").exists()
        if not known and not any((folder / ".git").exists() for folder in root.resolve().parents):
            return False
        if not known and ignore_rule(root, "."):
            return False
        return git(root, "rev-parse", "--is-inside-work-tree").strip() == b"true"
    except FileNotFoundError:
        if (root / ".git").exists():
            fix = "install git (apt install git)"
            raise Refused(
                "no-git", f"cannot list {root}", "it is a git work tree and there is no git here", fix
            ) from None
        return False


def _by_git(root: Path, inside: str, tree: Tree) -> None:
    """`inside`: "" or "sub/", a repository in the repository."""
    listing = ("ls-files", "-z", "--others", "--exclude-standard")
    ignored = _begin_git(root, *listing, "--ignored", "--directory")  # two gits at once: each walks the folder
    told = git(root, *listing, "--cached")
    left_out = [path for path in os.fsdecode(ignored.communicate()[0]).split("\0") if path]
    tree.left_out += [LeftOut(inside + path, "git ignores it") for path in sorted(left_out, key=_builds_last)]
    folder = str(root) + "/"
    for path in os.fsdecode(told[:-1]).split("\0") if told else ():
        try:
            found = os.lstat(folder + path)
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted, not yet committed
        if stat.S_ISDIR(found.st_mode):
            _inner_repository(root, path.rstrip("/"), inside, tree)
        else:
            _take(folder, path, inside, found, tree)


def _builds_last(path: str) -> tuple[bool, str]:
    return bool(is_built(path.rstrip("/"))), path


def _inner_repository(root: Path, path: str, inside: str, tree: Tree) -> None:
    """A submodule, or a repository that merely lies here."""
    tree.inner = True
    if (root / path / ".git").exists():
        tree.warnings.append(f"{inside}{path} is a repository of its own: what its git tracks travels too")
        _by_git(root / path, f"{inside}{path}/", tree)
        return
    staged = git(root, "ls-files", "--stage", "-z", "--", path).split(b"\0")
    if any(entry.startswith(b"160000 ") for entry in staged):
        tree.left_out.append(LeftOut(inside + path, "a submodule that is not checked out"))
        tree.warnings.append(
            f"the submodule {inside}{path} is not checked out and does not travel: git submodule update --init"
        )


def _by_walk(root: Path, inside: str, tree: Tree, above: str) -> None:
    empty = True
    for entry in _scan(root / above):
        path = f"{above}/{entry.name}" if above else entry.name
        found = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            if is_built(path) or (Path(entry.path) / "pyvenv.cfg").exists():
                tree.left_out.append(LeftOut(path + "/", "an environment, a cache or a build"))
                continue
            _by_walk(root, inside, tree, path)
        else:
            _take(str(root) + "/", path, inside, found, tree)
        empty = False
    if empty and above:
        tree.dirs.append(above)


def _scan(folder: Path) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from sorted(entries, key=lambda entry: entry.name)
    except PermissionError:
        raise Refused("unreadable", f"cannot publish {folder}", "it may not be read", "make it readable") from None


def _take(folder: str, path: str, inside: str, found: os.stat_result, tree: Tree) -> None:
    mode = found.st_mode
    if inside + path in OWN or path.split("/")[-1] == ".git":
        tree.left_out.append(LeftOut(inside + path, "a publish or git writes it itself"))
    elif stat.S_ISREG(mode):
        tree.files[inside + path] = FileStat(
            found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, mode & 0o777
        )
    elif stat.S_ISLNK(mode):
        tree.links[inside + path] = os.readlink(folder + path)  # noqa: PTH115 -- as it is spelled
    else:
        kind = _KINDS.get(stat.S_IFMT(mode), "no file")
        tree.left_out.append(LeftOut(inside + path, kind))
        tree.warnings.append(f"{inside}{path} does not travel: it is {kind}")
