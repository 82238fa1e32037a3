"""The token of a window in a project's own files: whoever knows it may join, and a published tree goes to every worker.

An overlay (`fdl.farm.yml`) that holds one stays behind unless git tracks it: no worker reads it, and the command that
makes one puts it among the files that a publish takes. What git tracks is on its way to everybody as it is, and
`fdl.yml` may be read by a program: of them a warning tells.
"""

from __future__ import annotations

import re
from pathlib import Path

from flodl_publish import selection
from flodl_publish.tree import LeftOut, Tree

_FILE = re.compile(r"(?:.*/)?fdl(\.[^/]+)?\.(?:ya?ml|json)\Z", re.DOTALL)
_TOKEN = re.compile(rb"\btoken[\"']?\s*:\s*[\"']?[0-9a-f]{32}\b")
_MOST = 1 << 20  # bytes that are looked at: the configs of people are small


def keep_back(root: Path, tree: Tree) -> None:
    for path in [path for path in tree.files if "fdl." in path]:
        found = _FILE.match(path)
        if not found or not _holds_one(root / path):
            continue
        tracked = tree.by == "git" and _tracked(root, path)
        if found[1] and not tracked:
            del tree.files[path]
            tree.left_out.append(LeftOut(path, "it holds the token of a window, and no worker reads it"))
            continue
        cure = "git tracks it: git rm --cached it, let git ignore it, make a new token" if tracked else ""
        if not found[1]:
            cure = "move it to an overlay (fdl.farm.yml), which stays behind unless git tracks it"
        tree.warnings.append(f"{path} travels with the token of a window, so who may pull may join; {cure}")


def _holds_one(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return bool(_TOKEN.search(opened.read(_MOST)))
    except OSError:
        return False  # the copy of it says why


def _tracked(root: Path, path: str) -> bool:
    whole = root / path
    return bool(selection.git(whole.parent, "ls-files", "-z", "--", whole.name, check=False))
