"""`.fdl-run.sha256`, beside the manifest: every file with its hash, as `sha256sum -c` reads it, and every link and
empty folder in comment lines, which that leaves alone. Pure.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field

from flodl_publish.run_manifest import SHA256, Digest
from flodl_publish.tree import Tree

_ESCAPES = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_BACK = {"\\": "\\", "n": "\n", "r": "\r", "t": "\t"}


@dataclass
class Listing:
    files: dict[str, str] = field(default_factory=dict)  # path: sha256
    links: dict[str, str] = field(default_factory=dict)
    dirs: list[str] = field(default_factory=list)


def render(hashes: dict[str, str], tree: Tree) -> bytes:
    """The same tree gives the same bytes."""
    lines = []
    for path in sorted(hashes):
        escaped = "\\" in path or "\n" in path or "\r" in path
        name = "".join(_ESCAPES[c] if c in "\\\n\r" else c for c in path) if escaped else path
        lines.append(f"{chr(92) if escaped else ''}{hashes[path]}  {name}")
    lines += [f"# link {_escape(path)}\t{_escape(tree.links[path])}" for path in sorted(tree.links)]
    lines += [f"# dir {_escape(path)}" for path in sorted(tree.dirs)]
    return os.fsencode("".join(line + "\n" for line in lines))


def digest(data: bytes, tree: Tree) -> Digest:
    return Digest(hashlib.sha256(data).hexdigest(), len(tree.files), tree.bytes)


def parse(data: bytes) -> Listing:
    """Raises ValueError when it is none, or names something outside of its tree."""
    listing = Listing()
    for line in os.fsdecode(data).split("\n"):
        if line.startswith("# link "):
            path, _, target = line[len("# link ") :].partition("\t")
            listing.links[_inside(_unescape(path))] = _unescape(target)
        elif line.startswith("# dir "):
            listing.dirs.append(_inside(_unescape(line[len("# dir ") :])))
        elif line and not line.startswith("#"):
            escaped = line.startswith("\\")
            sha256, gap, name = line[escaped:][:64], line[escaped:][64:66], line[escaped:][66:]
            if not SHA256.match(sha256) or gap not in ("  ", " *"):
                raise ValueError(f"a line is no hash with a name: {line[:80]!r}")
            listing.files[_inside(_unescape(name) if escaped else name)] = sha256
    return listing


def _inside(path: str) -> str:
    if path and path[0] not in "/." and path[-1] != "/" and "/." not in path and "//" not in path and "\0" not in path:
        return path  # the common case, 20,000 times
    if not path or path.startswith("/") or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise ValueError(f"it names {path!r}")
    return path


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
