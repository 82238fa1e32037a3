"""A publish from the spec to the manifest.

The manifest is the commit point: it goes before the tree is touched and comes back, by rename, when the tree, its
sidecar and every gate are good. Whatever ends a publish in between leaves a tree without a manifest, which no worker
takes. All that can be refused is refused before, while the run published last still stands.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flodl_publish import (
    checking,
    gates,
    lock,
    mirror,
    recipe,
    selection,
    sidecar,
    standing,
    tokens,
    unchanged,
)
from flodl_publish.index import INDEX, Index, sync_folder, write_whole
from flodl_publish.place import Place
from flodl_publish.report import Report, worker_specs
from flodl_publish.run_manifest import Digest, RunManifest
from flodl_publish.settings import Settings
from flodl_publish.source import without_secrets
from flodl_publish.standing import Glance
from flodl_publish.tree import SIDECAR, Tree
from flodl_wire import environ, served_runs
from flodl_wire.faults import Broken, Fault
from flodl_wire.libtorch import Variant

OTHERS = 1000  # Python files of the tree that are kept in mind for the gate, which looks at fewer


@dataclass(frozen=True)
class Wish:
    """A publish as asked: `gates` are libtorch variants besides the active one; `host` is how workers name this box."""

    settings: Settings
    gates: list[str]
    project: Path | None
    host: str = ""
    no_build: bool = False
    dry_run: bool = False
    wait: bool = False


@dataclass
class Filled:
    """The served tree as it is now. `settled`: all of it was looked at, and nothing had to be done."""

    digest: Digest
    done: mirror.Mirrored
    settled: bool = True


def publish(wish: Wish, say: Callable[[str], None], glance: Glance | None = None) -> Report:
    """`glance`: begun before, of this very source. Raises a Fault; its text says whether the run published before still
    stands.
    """
    began = time.monotonic()
    place = Place(wish.settings.to)
    variants = gates.variants(wish.gates, wish.project, no_build=wish.no_build)
    asked = json.dumps([wish.settings.source.text, wish.settings.cwd, wish.settings.bin, wish.settings.build])
    with _room(place), lock.held(place.state, "publish", wait=wish.wait, say=say):
        seen = standing.recall(place, glance, asked) if glance and not wish.dry_run else None
        if seen is not None:
            report = _publish_again(wish, place, seen, variants, say)
        else:
            report = _publish_anew(wish, place, variants, say, glance, asked)
    report.seconds = round(time.monotonic() - began, 3)
    return report


def _publish_again(
    wish: Wish, place: Place, seen: dict[str, Any], variants: list[Variant | None], say: Callable[[str], None]
) -> Report:
    """Nothing has changed: only the gate is anew, and the manifest."""
    report = _report(wish, place, seen)
    filled = Filled(Digest(**seen["digest"]), mirror.Mirrored())
    _commit(wish, place, Tree(), seen["others"], variants, report, lambda: filled, say)
    return report


def _publish_anew(
    wish: Wish,
    place: Place,
    variants: list[Variant | None],
    say: Callable[[str], None],
    glance: Glance | None,
    asked: str,
) -> Report:
    settings = wish.settings
    source = _bring(settings, place, say)
    intact = unchanged.look_beside(place)
    try:
        tree = selection.select(source)
    finally:
        there = intact()
    tokens.keep_back(source, tree)
    checking.check(settings, source, tree)
    checking.warn(settings, source, tree)
    seen = _seen(settings, tree)
    report = _report(wish, place, seen)
    if wish.dry_run:
        return report
    try:
        filled = _commit(
            wish, place, tree, seen["others"], variants, report, lambda: _filled(place, source, tree, there), say
        )
    except BaseException:
        for warning in tree.warnings:  # they may be the cause
            say(f"warning: {warning}")
        raise
    plain = recipe.choose(place.tree / settings.cwd, settings.build).kind == "nothing"
    if glance and filled.settled and plain and not wish.gates and not tree.inner:
        with contextlib.suppress(OSError):
            standing.remember(place, glance, asked, {**seen, "digest": asdict(filled.digest)})
    return report


def _seen(settings: Settings, tree: Tree) -> dict[str, Any]:
    """What a report tells of the tree, and the Python files that the gate looks at, as plain data."""
    start = settings.cwd + "/" if settings.cwd else ""
    return {
        "files": len(tree.files),
        "links": len(tree.links),
        "bytes": tree.bytes,
        "largest": [{"path": path, "bytes": count} for path, count in tree.largest()],
        "left_out": [{"path": each.path, "why": each.why} for each in tree.left_out],
        "warnings": list(tree.warnings),
        "by": tree.by,
        "others": [path for path in tree.files if path.endswith(".py") and path.startswith(start)][:OTHERS],
    }


def _bring(settings: Settings, place: Place, say: Callable[[str], None]) -> Path:
    """The source as a folder of this box."""
    source = settings.source
    if source.kind == "file":
        return Path(source.path)
    from flodl_publish import pulling  # it needs what most publishes do not

    say(f"fetching {source.origin}")
    origin = place.state / "fetched-from"
    kind = f"{source.kind} {source.host} {source.path} {without_secrets(source.url)}"
    if place.fetched.exists() and (not origin.exists() or origin.read_text() != kind):
        import shutil

        shutil.rmtree(place.fetched)
    login = pulling.Login(settings.identity)
    if source.kind == "git":
        pulling.git(source, place.fetched, login)
    else:
        pulling.rsync(source, place.fetched, login, pulling.UNPUBLISHED)
    write_whole(origin, kind.encode())
    return place.fetched


def _report(wish: Wish, place: Place, seen: dict[str, Any]) -> Report:
    settings = wish.settings
    host = wish.host or os.environ.get(environ.HOST_NAME) or os.uname().nodename
    user = os.environ.get(environ.HOST_USER) or _user()
    return Report(
        tree=str(place.tree),
        served=str(place.root),
        built=False,
        toolchain="",
        args=settings.args,
        run="",
        digest=None,
        origin=settings.source.origin,
        published_epoch=0,
        host=host,
        worker_specs=worker_specs(user, host, place.root),
        cwd=settings.cwd,
        build=settings.build,
        bin=settings.bin,
        **{key: seen[key] for key in ("files", "links", "bytes", "largest", "left_out", "by")},
        warnings=list(seen["warnings"]),
        dry_run=wish.dry_run,
    )


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # no passwd entry: ssh's own default holds
        return ""


def _commit(
    wish: Wish,
    place: Place,
    tree: Tree,
    others: list[str],
    variants: list[Variant | None],
    report: Report,
    fill: Callable[[], Filled],
    say: Callable[[str], None],
) -> Filled:
    settings = wish.settings
    place.tree.mkdir(parents=True, exist_ok=True)
    stood = place.manifest.exists()
    if stood:
        place.manifest.unlink()
        sync_folder(place.tree)
    with _without_manifest(stood, say):
        filled = fill()
        done = filled.done
        builds = gates.build_all(settings, place, tree, others, done.hashes, variants, say)
        manifest = RunManifest(
            bin=settings.bin,
            run=os.urandom(16).hex(),
            published_epoch=int(time.time()),
            cwd=settings.cwd,
            build=settings.build,
            args=settings.args,
            origin=settings.source.origin,
            toolchain=gates.toolchain(builds, place, settings),
            built=not wish.no_build,
            digest=filled.digest,
        )
        # ahead of the manifest: from now on the window of this box sends a worker with another run back for this one
        write_whole(place.root / served_runs.FILE, served_runs.with_run(place.root, manifest.run), sync=False)
        write_whole(place.manifest, manifest.render())
    report.run, report.published_epoch, report.built = manifest.run, manifest.published_epoch, manifest.built
    report.toolchain, report.digest = manifest.toolchain, manifest.as_dict()["digest"]
    report.copied, report.removed = done.copied, done.removed
    for built in builds:
        report.warnings += built.warnings
        report.gates.append({"variant": built.variant, "recipe": built.recipe, "seconds": built.seconds})
    if builds:
        report.build = settings.build or builds[0].recipe.replace(recipe.WORDS["nothing"], "")
    return filled


def _filled(place: Place, source: Path, tree: Tree, there: tuple[int, int]) -> Filled:
    done, settled = _fill(place, source, tree, there)
    return Filled(sidecar.digest(_sidecar(place, tree, done), tree), done, settled)


def _fill(place: Place, source: Path, tree: Tree, there: tuple[int, int]) -> tuple[mirror.Mirrored, bool]:
    """The served tree becomes `tree`; True when it was so already. The indexes are kept also when that fails, for the
    next try.
    """
    known = Index.load(place.state / "source.index")
    kept = unchanged.settled(tree, place, known, there)
    if kept is not None:
        return kept, True
    ours = Index.load(place.state / INDEX)
    (place.state / "sidecar").unlink(missing_ok=True)  # what it vouches for is about to change
    try:
        kept = mirror.mirror(source, tree, place.tree, known, ours, strict=True)
    finally:
        with contextlib.suppress(OSError) if kept is None else contextlib.nullcontext():
            known.save(place.state / "source.index")
            ours.save(place.state / INDEX)
    return kept, False


def _sidecar(place: Place, tree: Tree, done: mirror.Mirrored) -> bytes:
    """The sidecar, in its place. One that we wrote for this very content is left as it is."""
    target, mark = place.tree / SIDECAR, place.state / "sidecar"
    if not done.changed and target.exists() and mark.exists():
        data = target.read_bytes()
        if hashlib.sha256(data).hexdigest() == mark.read_text():
            return data
    data = sidecar.render(done.hashes, tree)
    write_whole(target, data)
    write_whole(mark, hashlib.sha256(data).hexdigest().encode())
    return data


@contextmanager
def _room(place: Place) -> Iterator[None]:
    try:
        place.root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as err:
        raise _from_system(place, err) from None


@contextmanager
def _without_manifest(stood: bool, say: Callable[[str], None]) -> Iterator[None]:
    """What fails in here leaves the served tree without a manifest, and says so."""
    after = "nothing is published now: workers wait until a publish succeeds" if stood else "nothing is published"
    try:
        yield
    except KeyboardInterrupt:
        say(f"ended; {after}")
        raise
    except Fault as fault:
        fault.args = (f"{fault}\n{after}",)
        fault.why = f"{fault.why}\n{after}" if fault.why else after
        raise
    except OSError as err:
        broken = _from_system(None, err)
        raise Broken(broken.code, broken.what, f"{broken.why}\n{after}", broken.fix) from None


def _from_system(place: Place | None, err: OSError) -> Fault:
    import errno

    where = f" into {place.root}" if place else ""
    if err.errno in (errno.ENOSPC, errno.EDQUOT):
        return Broken(
            "no-space", f"cannot publish{where}", "there is no space left", "make room, or choose --to elsewhere"
        )
    why = f"{err.filename}: {err.strerror}" if err.filename and err.strerror else str(err)
    return Broken("system", f"cannot publish{where}", why, "choose another folder with --to" if place else "")
