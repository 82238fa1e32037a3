"""What the source and the served tree looked like when nothing had to be done, to tell at a glance that it is so again.

An unchanged publish is the one that is waited for, and most of its time went into asking 40,000 files for their stat
from Python. So `find` asks, while this program is still being loaded: it lists both trees (of a source in git what git
names) with every file's size, times, inode and mode. When that is, byte for byte, what it was beside the last publish
that found nothing to do, then there is nothing to do.

Why that is enough: the listing was made before we looked at every file ourselves, and a ctime never comes back. What a
listing cannot show (a repository inside the source) is never remembered, and so takes the long way; so does everything
where there is no `find` of GNU's, 4.9 or newer.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path

from flodl_publish.place import Place
from flodl_publish.tree import BUILT, BUILT_AT_ROOT, MANIFEST

VERSION = 1
_SHOW = ("-printf", "%s %T@ %C@ %i %m %y %p\\0")
_LISTED = ("ls-files", "-z", "--others", "--exclude-standard")


class Glance:
    """Begins to look when it is made; `keys` waits for the end of it."""

    def __init__(self, source: Path, place: Place) -> None:
        self._served: list[_Look] = []
        self._source: list[_Look] = []
        self._keys: tuple[str, str] | None = None
        in_git = (source / ".git").is_dir()
        if not in_git and any((folder / ".git").exists() for folder in (source, *source.resolve().parents)):
            return  # a part of a work tree, or a linked one: the long way
        try:
            hidden = ("!", "-path", f"./{MANIFEST}")
            self._served.append(_Look(place.tree, "find", ".", "-mindepth", "1", *hidden, *_SHOW))
            if in_git:
                names = _Look(source, "git", *_LISTED, "--cached", piped=True)
                self._source += [names, _Look(source, "git", *_LISTED, "--ignored", "--directory")]
                stats = ("find", "-files0-from", "-", "-maxdepth", "0", *_SHOW)
                self._source.append(_Look(source, *stats, reads=names, missing=True))
            else:
                self._source.append(_Look(source, "find", ".", "-mindepth", "1", *_without_builds(), *_SHOW))
        except (OSError, AttributeError):  # no find, no git, no tree yet; a system without memfds
            self.end()

    def keys(self) -> tuple[str, str] | None:
        """Of the source and of the served tree; None when there was nothing to look at."""
        if self._served and self._source:
            served, source = ([look.result() for look in looks] for looks in (self._served, self._source))
            self._served, self._source = [], []
            whole = [part for part in (*served, *source) if part is not None]
            if len(whole) == len(served) + len(source):
                self._keys = (_hash(whole[1:]), _hash(whole[:1]))
        return self._keys

    def end(self) -> None:
        """Nobody wants to know any more."""
        for look in (*self._served, *self._source):
            look.end()
        self._served, self._source = [], []


class _Look:
    """One program that lists. `piped`: for another to read; `missing`: it may name what is not there any more."""

    def __init__(
        self, folder: Path, *words: str, piped: bool = False, reads: _Look | None = None, missing: bool = False
    ) -> None:
        self._missing = missing
        # a pipe would fill up, and nobody reads it yet
        self._out = -1 if piped else os.memfd_create("flodl-glance")
        try:
            self.process: subprocess.Popen[bytes] = subprocess.Popen(
                words,
                cwd=folder,
                stdin=reads.process.stdout if reads else subprocess.DEVNULL,
                stdout=subprocess.PIPE if piped else self._out,
                stderr=subprocess.DEVNULL,
                env=environment(),
            )
        except OSError:
            self._close()
            raise
        if reads and reads.process.stdout:
            reads.process.stdout.close()

    def result(self) -> bytes | None:
        """What it listed, None when it failed."""
        code = self.process.wait()
        if self._out < 0:
            return b"" if code == 0 else None
        with os.fdopen(self._out, "rb") as file:
            file.seek(0)
            listed = file.read()
        return listed if code == 0 or (self._missing and listed) else None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._close()

    def _close(self) -> None:
        if self._out >= 0:
            os.close(self._out)


def recall(place: Place, glance: Glance, asked: str) -> dict[str, object] | None:
    """What was remembered, when everything looks as it did then and the same was `asked`."""
    keys = glance.keys()
    try:
        document = json.loads((place.state / "standing.json").read_bytes())
    except (OSError, ValueError):
        return None
    if keys is None or not isinstance(document, dict):
        return None
    same = [document.get(name) for name in ("v", "asked", "source", "served")] == [VERSION, asked, *keys]
    seen = document.get("seen")
    return seen if same and isinstance(seen, dict) else None


def remember(place: Place, glance: Glance, asked: str, seen: dict[str, object]) -> None:
    """For a publish that found nothing to do, and looked at every file after the glance did."""
    from flodl_publish.index import write_whole

    keys = glance.keys()
    if keys is not None:
        document = {"v": VERSION, "asked": asked, "source": keys[0], "served": keys[1], "seen": seen}
        write_whole(place.state / "standing.json", json.dumps(document).encode(), sync=False)


def environment() -> dict[str, str]:
    """For git: its variables (set in hooks) would point it at another repository."""
    outer = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return outer | {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0"}


def _without_builds() -> list[str]:
    """Of a source without git what the selection leaves out by name, as find's own words."""
    names = [("-name", name) for name in (*BUILT, "*.egg-info")] + [("-path", f"./{name}") for name in BUILT_AT_ROOT]
    either = [word for test in names for word in ("-o", *test)][1:]
    return ["-type", "d", "(", *either, ")", "-prune", "-o"]


def _hash(parts: list[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()
