"""Brings a source to this box: rsync over ssh, and git. Their command lines are made here, pure."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl_publish import child
from flodl_publish.source import Source, without_secrets
from flodl_publish.tree import BUILT, BUILT_AT_ROOT, OWN
from flodl_wire import deadlines
from flodl_wire.faults import Broken, Fault, Refused, Transient
from flodl_wire.ssh_argv import FIXED_OPTIONS

CONNECT = 20.0  # to the ssh port
SILENT = 60.0  # a transfer in which nothing moves


@dataclass(frozen=True)
class Login:
    """`identity`: a key file. `options`: as ssh's -o takes them, ahead of ours (ssh takes the first of two)."""

    identity: str = ""
    options: tuple[str, ...] = ()


def ssh_words(login: Login, port: int | None = None) -> list[str]:
    words = ["ssh"]
    if port is not None:
        words += ["-p", str(port)]
    if login.identity:
        words += ["-i", login.identity]
    for option in (*login.options, *FIXED_OPTIONS, f"ConnectTimeout={deadlines.deadline(CONNECT):.0f}"):
        words += ["-o", option]
    return words


def rsync_argv(source: Source, target: Path, login: Login, filters: Sequence[str]) -> list[str]:
    """`target` becomes what the source's folder holds; times, modes and links are kept.

    Times are compared to the nanosecond: by default a change within one second that keeps the size is missed.
    """
    host = f"[{source.host}]" if ":" in source.host else source.host
    place = f"{source.user}@{host}" if source.user else host
    argv = ["rsync", "-a", "--modify-window=-1", f"--timeout={deadlines.deadline(SILENT):.0f}", *filters]
    return [*argv, "-e", shlex.join(ssh_words(login, source.port)), "--", f"{place}:{source.path}/", f"{target}/"]


# Whole, and nothing deleted: what must go is known better from the tree's own listing.
PUBLISHED = ("--force", "--exclude=/.git")
MANIFEST_ALONE = (*(f"--include=/{name}" for name in OWN), "--exclude=*")
# Of a tree that nobody published: all but environments and builds, which stay on this side, too.
UNPUBLISHED = (
    "--delete",
    *(f"--exclude={name}/" for name in BUILT),
    *(f"--exclude=/{name}/" for name in BUILT_AT_ROOT),
    "--exclude=*.egg-info/",
    "--exclude=/.git",
)


def rsync(
    source: Source, target: Path, login: Login, filters: Sequence[str], meanwhile: Callable[[], None] | None = None
) -> None:
    """`meanwhile` is called while it runs.

    Raises Transient when it does not come, Refused when there is no rsync here.
    """
    if shutil.which("rsync") is None:
        raise Refused("no-tool", f"cannot fetch {source.origin}", "there is no rsync on this box", "apt install rsync")
    target.mkdir(parents=True, exist_ok=True)
    ended = child.run(rsync_argv(source, target, login, filters), cwd=target, env=_environment(), meanwhile=meanwhile)
    if ended.code:
        raise _rsync_failed(source, ended)


def listed(source: Source, target: Path, login: Login, paths: Sequence[str], note: Path) -> None:
    """Brings these files, whatever lies in their place; what does lie there saves its bytes from travelling again.

    `note`: a file to name them in, for the time of it. Raises as `rsync`.
    """
    note.write_bytes(os.fsencode("".join(f"{path}\0" for path in paths)))
    try:
        rsync(source, target, login, ("--force", "--ignore-times", "--from0", f"--files-from={note}"))
    finally:
        note.unlink(missing_ok=True)


def git(source: Source, target: Path, login: Login) -> str:
    """`target` becomes a checkout of the ref, whatever is not tracked stays; the commit.

    Raises Refused when the server will not give a bare commit, Transient otherwise.
    """
    if shutil.which("git") is None:
        raise Refused("no-tool", f"cannot fetch {source.origin}", "there is no git on this box", "apt install git")
    target.mkdir(parents=True, exist_ok=True)
    environment = _environment() | {"GIT_TERMINAL_PROMPT": "0", "GIT_SSH_COMMAND": shlex.join(ssh_words(login))}
    if not (target / ".git").is_dir():
        _git(source, target, environment, "init", "--quiet")
    # a killed git leaves its locks; nobody else works here, for we hold the folder's lock
    for lock in (target / ".git").glob("*.lock"):
        lock.unlink(missing_ok=True)
    _git(source, target, environment, "fetch", "--quiet", "--no-tags", "--depth=1", "--", source.url, source.ref)
    _git(source, target, environment, "checkout", "--quiet", "--force", "--detach", "FETCH_HEAD")
    if (target / ".gitmodules").is_file():
        words = ("submodule", "update", "--quiet", "--init", "--recursive", "--force", "--depth=1")
        _git(source, target, environment, *words)
    return _git(source, target, environment, "rev-parse", "HEAD").tail[-1]


def _git(source: Source, target: Path, environment: dict[str, str], *words: str) -> child.Ended:
    ended = child.run(["git", *words], cwd=target, env=environment)
    if ended.code == 0:
        return ended
    text = "\n".join(ended.tail)
    what = f"cannot fetch {source.origin}"
    if "No space left" in text:
        raise _full(what, target)
    if re.search(r"not our ref|unadvertised object|allow.*SHA1InWant", text):
        fix = "let the server say `git config uploadpack.allowReachableSHA1InWant true`, or name a branch or a tag"
        raise Refused("bare-commit", what, "the server gives no bare commits", fix)
    said = next((line for line in ended.tail if line.startswith(("fatal:", "error:"))), "")
    raise Transient("fetch-failed", what, f"git {words[0]}: {without_secrets(said) or ended.how}")


def _rsync_failed(source: Source, ended: child.Ended) -> Fault:
    what = f"cannot fetch {source.origin}"
    text = "\n".join(ended.tail)
    if "No space left" in text:
        return _full(what, None)
    if "is your shell clean" in text:
        host = f"{source.user and source.user + '@'}{source.host}"
        why = "the login shell of the other box prints something before rsync can speak"
        fix = f"let its start files print only when they are interactive; nothing may come of: ssh {host} true"
        return Transient("shell-talks", what, why, fix)
    if ended.code == 255 or "Permission denied (" in text:
        said = next((line for line in reversed(ended.tail) if line and not line.startswith("rsync")), ended.how)
        return Transient(
            "unreachable",
            what,
            f"ssh: {said.removeprefix('ssh: ')}",
            f"try: ssh {source.user and source.user + '@'}{source.host}",
        )
    if ended.code == 24 or (ended.code == 23 and "link_stat" in text and "/." not in text):
        return Transient("tree-moves", what, "files vanished while they were fetched: a publish is under way")
    if re.search(r"(change_dir|rrsync error).*No such file", text):
        why = "there is no such folder there; behind an `rrsync` key the path is the one below its folder (/tree)"
        return Transient("no-tree", what, why)
    if "command not found" in text or "rsync: not found" in text:
        return Transient("fetch-failed", what, "there is no rsync on the other box", "apt install rsync there")
    said = next((line for line in ended.tail if line.strip()), "")
    return Transient("fetch-failed", what, f"rsync: {ended.how}: {said}")


def _full(what: str, target: Path | None) -> Fault:
    return Broken("no-space", what, f"no space left on this box{f' in {target}' if target else ''}", "make room")


def _environment() -> dict[str, str]:
    outer = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return outer | {"LC_ALL": "C"}  # their messages are read
