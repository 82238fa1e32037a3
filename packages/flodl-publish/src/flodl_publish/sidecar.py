"""`.fdl-run.sha256`, beside the manifest: every file with its hash, as `sha256sum -c` reads it, and in comment lines,
which that leaves alone, what of it may be run, every link and every empty folder. Pure.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from flodl_publish.run_manifest import Digest
from flodl_publish.tree import Tree

_HASHES = re.compile(r"[0-9a-f]*\Z")  # each is 64 long by its place in the line
_GAPS = ("  ", " *")
_NO_NAMES = frozenset(("", ".", ".."))
_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BACK = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


@dataclass
class Listing:
    files: dict[str, str] = field(default_factory=dict)  # path: sha256
    executable: set[str] = field(default_factory=set)  # of the files; who else may read or write them is not told
    links: dict[str, str] = field(default_factory=dict)
    dirs: list[str] = field(default_factory=list)

    def only(self, paths: Iterable[str]) -> Listing:
        """Of the files these, and all links."""
        return Listing({path: self.files[path] for path in paths}, self.executable, self.links, self.dirs)


def render(hashes: dict[str, str], tree: Tree) -> bytes:
    """The same tree gives the same bytes."""
    lines = []
    for path in sorted(hashes):
        escaped = "\\" in path or "\n" in path or "\r" in path
        name = "".join(_ESCAPES[c] if c in "\\\n\r" else c for c in path) if escaped else path
        lines.append(f"{chr(92) if escaped else ''}{hashes[path]}  {name}")
    lines += [
        f"# run {_escape(path)}" for path in sorted(path for path, found in tree.files.items() if found.mode & 0o111)
    ]
    lines += [f"# link {_escape(path)}\t{_escape(tree.links[path])}" for path in sorted(tree.links)]
    lines += [f"# dir {_escape(path)}" for path in sorted(tree.dirs)]
    return os.fsencode("".join(line + "\n" for line in lines))


def digest(data: bytes, tree: Tree) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest(), len(tree.files), tree.bytes)


def parse(data: bytes) -> Listing:
    """Raises ValueError when it is none, or names something outside of its tree."""
    listing = Listing()
    files = listing.files
    for line in os.fsdecode(data).split("\n"):
        if line[64:66] in _GAPS and line[0] not in "#\\":
            files[line[66:]] = line[:64]  # the common case, 20,000 times
        elif line:
            _take(line, listing)
    if not _HASHES.match("".join(files.values())):
        raise ValueError("a line is no hash with a name")
    for paths in (files, listing.executable, listing.links, listing.dirs):
        _keep_inside(paths)
    return listing


def _take(line: str, listing: Listing) -> None:
    if line.startswith("# link "):
        path, _, target = line[len("# link ") :].partition("\t")
        listing.links[_unescape(path)] = _unescape(target)
    elif line.startswith("# run "):
        listing.executable.add(_unescape(line[len("# run ") :]))
    elif line.startswith("# dir "):
        listing.dirs.append(_unescape(line[len("# dir ") :]))
    elif not line.startswith("#"):
        if line[0] != "\\" or line[65:67] not in _GAPS:
            raise ValueError(f"a line is no hash with a name: {line[:80]!r}")
        listing.files[_unescape(line[67:])] = line[1:65]


def _keep_inside(paths: Collection[str]) -> None:
    """Asks for all at once, so that 20,000 cost little; names the one that is wrong."""
    together = "/".join(paths)
    if not paths or ("\0" not in together and _NO_NAMES.isdisjoint(together.split("/"))):
        return
    wrong = next(path for path in paths if "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")))
    raise ValueError(f"it names {wrong!r}")


def _escape(text: str) -> str:
    return "".join(_ESCAPES.get(char, char) for char in text)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out, chars = [], iter(text)
    for char in chars:
        if char != "\\":
            out.append(char)
            continue
        after = next(chars, "")
        if after not in _BACK:
            raise ValueError(f"a name is escaped wrongly: {text[:80]!r}")
        out.append(_BACK[after])
    return "".join(out)
