"""A worker's copy of a run: pulled, rid of what is no longer in it, proven whole.

While it is not, the copy has no manifest or is marked unfinished, and what a killed fetch left behind is swept by the
next one. Builds of the tree (environments, targets, objects) are nobody's business here and stay.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flodl_publish import copying, lock, mirror, proof, pulling, run_manifest, selection, sidecar
from flodl_publish.index import TICK_NS, Index, write_whole
from flodl_publish.place import Place
from flodl_publish.pulling import Login
from flodl_publish.run_manifest import RunManifest
from flodl_publish.source import Source, without_secrets
from flodl_publish.tree import SIDECAR, FileStat, Tree
from flodl_wire.faults import Broken, Refused, Transient


@dataclass(frozen=True)
class Local:
    """This box's own recipe, for a source that nobody published; a manifest wins over each of its keys."""

    bin: str = ""
    cwd: str = ""
    build: str = ""
    args: list[str] = field(default_factory=list)


@dataclass
class Fetched:
    tree: str
    source: str
    published: bool  # it has a manifest; what follows of a run is empty otherwise
    bin: str
    cwd: str
    build: str
    args: list[str]
    run: str = ""
    origin: str = ""
    toolchain: str = ""
    built: bool = False
    published_epoch: int = 0
    age_secs: int = 0
    digest: str = ""
    files: int = 0
    bytes: int = 0
    removed: int = 0
    seconds: float = 0.0
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def fetch(source: Source, root: Path, local: Local, login: Login, say: Callable[[str], None]) -> Fetched:
    """`root`/tree becomes the run at `source`. Raises Transient for what may be otherwise at the next try, Refused for
    what will not.
    """
    began = time.monotonic()
    place = Place(root)
    with _room(place), lock.held(place.state, "fetch", say=say):
        unfinished = place.state / "unfinished"
        swept = _begin(source, place, unfinished)
        index, before, file = Index(), Index(), place.state / "tree.json"

        def remember() -> None:
            """Done while rsync works: both are felt over 20,000 files."""
            import yaml  # noqa: F401 -- which the manifest is read with

            loaded = Index.load(file)
            index.hashes, index.others = loaded.hashes, loaded.others
            before.hashes, before.others = dict(loaded.hashes), list(loaded.others)

        try:
            swept = swept or not file.exists()
            manifest, removed, count, size = _bring(source, place, local, login, index, swept, remember)
        finally:
            if (index.hashes, index.others) != (before.hashes, before.others) or not file.exists():
                with contextlib.suppress(OSError):
                    index.save(file)
        unfinished.unlink(missing_ok=True)
    merged = manifest or RunManifest(local.bin, "", 0, local.cwd, local.build, local.args, built=False)
    done = Fetched(
        str(place.tree), source.origin, manifest is not None, merged.bin, merged.cwd, merged.build, merged.args
    )
    done.files, done.bytes, done.removed = count, size, removed
    if manifest is not None:
        done.run, done.origin, done.toolchain, done.built = (
            manifest.run,
            manifest.origin,
            manifest.toolchain,
            manifest.built,
        )
        done.published_epoch = manifest.published_epoch
        done.age_secs = max(0, int(time.time()) - manifest.published_epoch)
        done.digest = manifest.digest.sha256 if manifest.digest else ""
        done.notes = _notes(manifest, done.age_secs, source)
    done.seconds = round(time.monotonic() - began, 3)
    return done


def _begin(source: Source, place: Place, unfinished: Path) -> bool:
    """True when a fetch before this one did not end, or was of another source: then the copy is swept."""
    swept = unfinished.exists()
    if not swept:
        unfinished.touch()  # its time is when the copy began to be unknown
    origin = place.state / "fetched-from"
    kind = f"{source.kind} {source.host} {source.path} {without_secrets(source.url)}"
    before = origin.read_text() if origin.exists() else ""
    if before != kind:
        swept = True
        (place.state / "tree.json").unlink(missing_ok=True)
        if place.tree.exists():
            shutil.rmtree(place.tree)
        write_whole(origin, kind.encode())
    place.tree.mkdir(parents=True, exist_ok=True)
    place.manifest.unlink(missing_ok=True)
    return swept


def _bring(
    source: Source,
    place: Place,
    local: Local,
    login: Login,
    index: Index,
    swept: bool,
    remember: Callable[[], None],
) -> tuple[RunManifest | None, int, int, int]:
    """Manifest, files removed, files, bytes."""
    if source.kind == "git":
        commit = pulling.git(source, place.tree, login)
        _need_local(local, f"{source.origin} ({commit[:12]})")
        tree = selection.select(place.tree)
        return None, 0, len(tree.files), tree.bytes
    if source.kind == "file":
        remember()
        return _from_folder(Path(source.path), place, local, index, swept)
    published = True
    if local.bin or swept:  # one short connection more, before what may be a long transfer of the wrong thing
        pulling.rsync(source, place.tree, login, pulling.MANIFEST_ALONE)
        published = place.manifest.exists()
        if not published:
            _need_local(local, source.origin)
        place.manifest.unlink(missing_ok=True)
    if not published:
        pulling.rsync(source, place.tree, login, pulling.UNPUBLISHED)
        tree = selection.select(place.tree)
        return None, 0, len(tree.files), tree.bytes
    pulling.rsync(source, place.tree, login, pulling.PUBLISHED, remember)
    return _prove(place, index, swept or not index.hashes)


def _prove(place: Place, index: Index, swept: bool) -> tuple[RunManifest, int, int, int]:
    manifest = _manifest(place.manifest)
    if manifest.digest is None:
        return manifest, 0, 0, 0
    try:
        listed = proof.listing(place.tree, manifest.digest)
        wanted = _tree_of(listed)
        removed = mirror.forget(place.tree, wanted, index)
        if swept:
            removed += mirror.clean(place.tree, wanted, _spared(), _since(place, index))
        size = proof.prove(place.tree, listed, index)
    except BaseException:
        place.manifest.unlink(missing_ok=True)
        raise
    index.keep_only(wanted.files)
    index.others = [*wanted.links, *wanted.dirs]
    return manifest, removed, len(listed.files), size


def _from_folder(
    folder: Path, place: Place, local: Local, index: Index, swept: bool
) -> tuple[RunManifest | None, int, int, int]:
    """A folder of this box. What is published there is copied by its own listing."""
    if not folder.is_dir():
        raise Transient("no-tree", f"cannot fetch file://{folder}", "there is no such folder")
    there = Place(folder.parent) if (folder / run_manifest.NAME).exists() else None
    if there is None:
        _need_local(local, f"file://{folder}")
        tree = selection.select(folder)
        done = mirror.mirror(folder, tree, place.tree, Index(), index, strict=False)
        return None, done.removed, len(tree.files), tree.bytes
    manifest = _manifest(folder / run_manifest.NAME)
    if manifest.digest is None:
        raise Transient("no-digest", f"cannot fetch file://{folder}", "its manifest names no digest", "publish again")
    listed = proof.listing(folder, manifest.digest)
    wanted = _tree_of(listed)
    base = f"{folder}/"  # a Path for each of 20,000 files would cost as much as their stat
    for path in listed.files:
        try:
            wanted.files[path] = copying.of_stat(os.lstat(base + path))
        except OSError:
            continue
    data = (folder / SIDECAR).read_bytes()
    known = Index()
    for path, sha256 in listed.files.items():
        known.put(path, wanted.files[path], sha256)
    removed = 0
    if swept or not index.hashes:
        removed = mirror.clean(place.tree, wanted, _spared(), _since(place, index))
    removed += mirror.mirror(folder, wanted, place.tree, known, index, strict=False).removed
    write_whole(place.tree / SIDECAR, data)
    size = proof.prove(place.tree, listed, index)
    if not (folder / run_manifest.NAME).exists():
        raise Transient("tree-moves", f"cannot fetch file://{folder}", "a publish began while it was copied")
    write_whole(place.manifest, manifest.render())
    return manifest, removed, len(listed.files), size


def _since(place: Place, index: Index) -> int:
    """What the copy held before the fetch that did not end is known by the index, or is a build's and stays. 0 where
    there is no index: then nothing is known.
    """
    try:
        return (place.state / "unfinished").stat().st_ctime_ns - TICK_NS if index.hashes else 0
    except OSError:
        return 0


def _tree_of(listed: sidecar.Listing) -> Tree:
    nothing = FileStat(0, 0, 0, 0, 0o644)
    return Tree(files=dict.fromkeys(listed.files, nothing), links=listed.links, dirs=listed.dirs)


def _manifest(file: Path) -> RunManifest:
    """A manifest that is none may be a good one at the next try: the controller writes it, not this box."""
    try:
        return run_manifest.read(file)
    except Refused as fault:
        raise Transient(fault.code, fault.what, fault.why, fault.fix) from None


def _need_local(local: Local, origin: str) -> None:
    if not local.bin:
        raise Transient(
            "no-manifest",
            f"cannot take the run at {origin}",
            "it has no manifest: it is a publish away, or one is under way, or its gate failed",
            "publish the run; or name this box's own recipe by --bin",
        )


def _notes(manifest: RunManifest, age: int, source: Source) -> list[str]:
    notes = [f"this run is {age // 86400} days old"] if age >= 2 * 86400 else []
    if not manifest.built:
        notes.append("this run was published with --no-build: nothing has compiled it before")
    if manifest.digest is None:
        notes.append(f"{source.origin} was published by an older flodl-publish: it cannot be proven whole")
    return notes


def _spared() -> Iterator[str]:
    yield from (name for name in (*selection.BUILT, *selection.BUILT_AT_ROOT))


@contextmanager
def _room(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        if err.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"cannot fetch into {place.root}"
            raise Broken("no-space", what, "there is no space left", "make room, or choose --to elsewhere") from None
        raise Refused("unwritable", f"cannot fetch into {place.root}", str(err), "make it writable") from None
