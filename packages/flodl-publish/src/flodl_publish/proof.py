"""Proves that a fetched tree is, whole, the one that was published."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

from flodl_publish import copying, sidecar
from flodl_publish.index import Index
from flodl_publish.run_manifest import Digest
from flodl_publish.sidecar import Listing
from flodl_publish.tree import SIDECAR
from flodl_wire.faults import Transient

NAMED = 5
FIX = "fetch again; if it stays so, publish again"


def listing(root: Path, digest: Digest) -> Listing:
    """The tree's sidecar. Raises Transient (code digest-differs) when it is not the one the manifest names."""
    try:
        data = (root / SIDECAR).read_bytes()
    except FileNotFoundError:
        raise differs(root, f"{SIDECAR} is missing") from None
    if hashlib.sha256(data).hexdigest() != digest.sha256:
        raise differs(root, f"{SIDECAR} is of another publish than the manifest")
    try:
        return sidecar.parse(data)
    except ValueError as err:
        raise differs(root, f"{SIDECAR} cannot be read: {err}") from None


def prove(root: Path, listed: Listing, index: Index) -> int:
    """The bytes of the tree. Files that differ are removed, so that the next fetch brings them anew, and named.

    `index` is brought up to date. Raises Transient (code digest-differs).
    """
    wrong: list[str] = []
    base, total = str(root) + "/", 0
    for path, wanted in listed.files.items():
        try:
            found = os.lstat(base + path)
            seen = copying.of_stat(found)
            got = index.get(path, seen) if found.st_mode & 0o170000 == 0o100000 else ""
            if got is None:
                got = copying.sha256_of(base + path)
                index.put(path, seen, got)
        except OSError as err:
            wrong.append(f"{path} ({(err.strerror or 'unreadable').lower()})")
            continue
        if got != wanted:
            wrong.append(f"{path} (another content)")
            index.hashes.pop(path, None)
            with contextlib.suppress(OSError):
                os.unlink(base + path)  # noqa: PTH108 -- rsync would take the same size and time for the same file
        total += seen.size
    for path, target in listed.links.items():
        try:
            if os.readlink(base + path) != target:  # noqa: PTH115 -- as it is spelled
                wrong.append(f"{path} (another target)")
        except OSError:
            wrong.append(f"{path} (no link)")
    if wrong:
        more = f" and {len(wrong) - NAMED} more" if len(wrong) > NAMED else ""
        raise differs(root, ", ".join(wrong[:NAMED]) + more)
    return total


def differs(root: Path, why: str) -> Transient:
    return Transient(
        "digest-differs",
        f"cannot use the tree in {root}",
        f"it is not what was published, or a publish is under way: {why}",
        FIX,
    )
