"""A worker's copy of a run: pulled, rid of what is no longer in it, proven whole.

While it is not, the copy has no manifest or is marked unfinished, and what a killed fetch left behind is swept by the
next one. Builds of the tree (environments, targets, objects) are nobody's business here and stay.
"""

from __future__ import annotations

import contextlib
import errno
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flodl_publish import lock, mirror, proof, pulling, renewal, run_manifest, selection
from flodl_publish.index import INDEX, TICK_NS, Index, write_whole
from flodl_publish.place import Place
from flodl_publish.pulling import Login
from flodl_publish.renewal import Kept
from flodl_publish.run_manifest import RunManifest
from flodl_publish.sidecar import Listing
from flodl_publish.source import Source, without_secrets
from flodl_publish.tree import BUILT, BUILT_AT_ROOT, SIDECAR, FileStat, Tree
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
        swept = _begin(source, place)
        file = place.state / INDEX
        index, before = Index(), Index()
        copy = Copy(place, index)

        def look() -> None:
            """Done while the listing is under way: it is felt over 20,000 files."""
            loaded = Index.load(file)
            index.hashes, index.others = loaded.hashes, loaded.others
            before.hashes, before.others = dict(loaded.hashes), list(loaded.others)
            copy.kept = renewal.kept(place.tree, index)

        try:
            copy.swept = swept or not file.exists()
            manifest, count, size = _bring(source, copy, local, login, look)
        finally:
            if (index.hashes, index.others) != (before.hashes, before.others) or not file.exists():
                with contextlib.suppress(OSError):
                    index.save(file)
        place.unfinished.unlink(missing_ok=True)
    merged = manifest or RunManifest(local.bin, "", 0, local.cwd, local.build, local.args, built=False)
    done = Fetched(
        str(place.tree), source.origin, manifest is not None, merged.bin, merged.cwd, merged.build, merged.args
    )
    done.files, done.bytes, done.removed = count, size, copy.removed
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


def _begin(source: Source, place: Place) -> bool:
    """True when a fetch before this one ended while it changed the copy, or was of another source: then it is swept."""
    if not place.unfinished.exists():
        place.unfinished.touch()
    swept = place.unfinished.stat().st_size > 0
    origin = place.state / "fetched-from"
    kind = f"{source.kind} {source.host} {source.path} {without_secrets(source.url)}"
    before = origin.read_text() if origin.exists() else ""
    if before != kind:
        swept = True
        (place.state / INDEX).unlink(missing_ok=True)
        if place.tree.exists():
            shutil.rmtree(place.tree)
        write_whole(origin, kind.encode())
    place.tree.mkdir(parents=True, exist_ok=True)
    place.manifest.unlink(missing_ok=True)
    return swept


@dataclass
class Copy:
    """The worker's own folder. `swept`: nothing in it is known for sure, and what is not of the run goes."""

    place: Place
    index: Index
    kept: Kept = field(default_factory=Kept)
    swept: bool = False
    removed: int = 0

    def changes(self) -> None:
        """From now on it is neither what it was nor what it will be. Where no run is to be had it stays what it was."""
        if not self.place.unfinished.stat().st_size:
            self.place.unfinished.write_text("since then\n")


def _bring(
    source: Source, copy: Copy, local: Local, login: Login, look: Callable[[], None]
) -> tuple[RunManifest | None, int, int]:
    """Manifest, files, bytes. `look` fills in what the copy holds."""
    place = copy.place
    if source.kind == "git":
        copy.changes()
        commit = pulling.git(source, place.tree, login)
        _need_local(local, f"{source.origin} ({commit[:12]})")
        return _unpublished(place)
    if source.kind == "file":
        look()
        return _from_folder(Path(source.path), copy, local)
    pulling.rsync(source, place.tree, login, pulling.MANIFEST_ALONE, look)
    if not place.manifest.exists():
        _need_local(local, source.origin)
        copy.changes()
        pulling.rsync(source, place.tree, login, pulling.UNPUBLISHED)
        return _unpublished(place)
    data = place.manifest.read_bytes()
    try:
        manifest = _manifest(place.manifest)
    finally:
        place.manifest.unlink()  # until the tree is what it vouches for
    if manifest.digest is None:
        copy.changes()
        pulling.rsync(source, place.tree, login, pulling.PUBLISHED)
        return manifest, 0, 0

    def pull(paths: list[str]) -> None:
        made: set[str] = set()
        for folder in mirror.folders(paths):  # rsync would follow a link there
            mirror.make_folder(place.tree, folder, made)
        pulling.listed(source, place.tree, login, paths, place.state / "wanted")

    listed = _renew(copy, proof.listing(place.tree, manifest.digest), pull)
    write_whole(place.manifest, data, sync=False)  # after a power loss the index is of another boot
    return manifest, len(listed.files), manifest.digest.bytes


def _unpublished(place: Place) -> tuple[None, int, int]:
    tree = selection.select(place.tree)
    return None, len(tree.files), tree.bytes


def _from_folder(folder: Path, copy: Copy, local: Local) -> tuple[RunManifest | None, int, int]:
    """A folder of this box."""
    place = copy.place
    if not folder.is_dir():
        raise Transient("no-tree", f"cannot fetch file://{folder}", "there is no such folder")
    published = folder / run_manifest.NAME
    if not published.exists():
        if (folder / "tree" / run_manifest.NAME).exists() and not local.bin:
            why = "it is a served folder, and a run is what lies in its tree/"
            raise Refused("served-folder", f"cannot fetch file://{folder}", why, f"name file://{folder}/tree")
        _need_local(local, f"file://{folder}")
        tree = selection.select(folder)
        copy.changes()
        copy.removed = mirror.mirror(folder, tree, place.tree, Index(), copy.index, strict=False).removed
        return None, len(tree.files), tree.bytes
    manifest = _manifest(published)
    if manifest.digest is None:
        raise Transient("no-digest", f"cannot fetch file://{folder}", "its manifest names no digest", "publish again")
    listed = proof.listing(folder, manifest.digest)
    data = (folder / SIDECAR).read_bytes()
    _renew(copy, listed, lambda paths: renewal.from_folder(folder, place.tree, paths, copy.index))
    write_whole(place.tree / SIDECAR, data, sync=False)
    if not published.exists():
        raise Transient("tree-moves", f"cannot fetch file://{folder}", "a publish began while it was copied")
    write_whole(place.manifest, manifest.render(), sync=False)
    return manifest, len(listed.files), manifest.digest.bytes


def _renew(copy: Copy, listed: Listing, bring: Callable[[list[str]], None]) -> Listing:
    """The copy becomes what is listed. `bring` fetches files; all that it brought is proven, the rest was kept."""
    root, index = copy.place.tree, copy.index
    wanted = _tree_of(listed)
    copy.changes()
    copy.removed = mirror.forget(root, wanted, index)
    if copy.swept or not index.hashes:
        copy.removed += mirror.clean(root, wanted, (*BUILT, *BUILT_AT_ROOT), _since(copy.place, index))
    missing = renewal.missing(root, listed, copy.kept, index)
    if missing:
        bring(missing)
    mirror.place_links(wanted, root, set())
    proof.prove(root, listed.only(missing), index)
    index.keep_only(wanted.files)
    index.others = [*wanted.links, *wanted.dirs]
    return listed


def _since(place: Place, index: Index) -> int:
    """What the copy held before the fetch that did not end is known by the index, or is a build's and stays. 0 where
    there is no index: then nothing is known.
    """
    try:
        return place.unfinished.stat().st_ctime_ns - TICK_NS if index.hashes else 0
    except OSError:
        return 0


def _tree_of(listed: Listing) -> Tree:
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


@contextmanager
def _room(place: Place) -> Iterator[None]:
    try:
        yield
    except OSError as err:
        if err.errno in (errno.ENOSPC, errno.EDQUOT):
            what = f"cannot fetch into {place.root}"
            raise Broken("no-space", what, "there is no space left", "make room, or choose --to elsewhere") from None
        what, why = f"cannot fetch into {place.root}", f"{err.filename or place.root}: {err.strerror or err}"
        raise Refused("unwritable", what, why, "make it writable, or choose --to elsewhere") from None
