"""Whether a publish changes nothing: the common case, and the one that is waited for.

Asking 20,000 files for their stat is half a publish here, and Python asks one at a time. So a forked process looks at
the served tree while this one looks at the source.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from flodl_publish import mirror
from flodl_publish.index import INDEX, Index
from flodl_publish.place import Place
from flodl_publish.tree import OWN, Tree

NO = (-1, -1)


def look_beside(place: Place) -> Callable[[], tuple[int, int]]:
    """Begins to look; the answer of `intact` when it is called, once. Call before any thread is started."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = NO
        try:
            answer = intact(place)
        finally:
            os.write(writer, f"{answer[0]} {answer[1]}".encode())
            os._exit(0)
    os.close(writer)

    def answer_of_it() -> tuple[int, int]:
        with os.fdopen(reader, "rb") as file:
            words = file.read().split()
        os.waitpid(pid, 0)
        return (int(words[0]), int(words[1])) if len(words) == 2 else NO

    return answer_of_it


def intact(place: Place) -> tuple[int, int]:
    """How many files, and how many links and folders of their own, the served tree has when it is, to the last stat, as
    the publish before left it; else NO."""
    ours = Index.load(place.state / INDEX)
    if not ours.hashes or not place.tree.is_dir():
        return NO
    others = set(ours.others)
    folders = mirror.folders([*ours.hashes, *others])
    files = 0
    for path, found in mirror.contents(place.tree).items():
        if found is None:
            if path not in folders and path not in others:
                return NO
        elif ours.get(path, found) is not None:
            files += 1
        elif path not in OWN:
            return NO
    return (files, len(others)) if files == len(ours.hashes) else NO


def settled(tree: Tree, place: Place, known: Index, there: tuple[int, int]) -> mirror.Mirrored | None:
    """What a mirror would answer that finds nothing to do; None when there may be something to do.

    Both indexes are written together and hold the same hash for a path, so a source's file that `known` has is the one
    that lies, untouched, in the served tree.
    """
    others = len(tree.links) + len(tree.dirs)
    if there != (len(tree.files), others) or len(known.hashes) != len(tree.files):
        return None
    done = mirror.Mirrored()
    for path, found in tree.files.items():
        sha256 = known.get(path, found)
        if sha256 is None:
            return None
        done.hashes[path] = sha256
    for path, target in tree.links.items():
        if not os.path.islink(f"{place.tree}/{path}") or os.readlink(f"{place.tree}/{path}") != target:  # noqa: PTH114, PTH115
            return None
    return done if all((place.tree / path).is_dir() for path in tree.dirs) else None
