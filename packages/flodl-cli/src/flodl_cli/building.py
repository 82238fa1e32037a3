"""Building for every remote host at once, before any of them is dialled: a line each when it is done, and the first
failure ends them all.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from flodl_cli import container
from flodl_cli.prebuild import HostBuild, Prebuild, digest_of_files, fingerprint
from flodl_wire import environ, libtorch
from flodl_wire.faults import Refused
from flodl_wire.specs import Site

_LAST_LINES = 12
_GRACE = 2.0  # seconds between TERM and KILL for a build that is given up

# Behind the recipe: which Python it was for. Whoever builds no Python has no `python`, and nothing is compared.
_MINOR = "python -c \"import sys; print('%d.%d' % sys.version_info[:2])\" 2>/dev/null"

_SETUPTOOLS = "DIST_EXTRA_CONFIG"  # setuptools alone builds inside the source, where parallel builds would meet


def build_all(plan: Prebuild, *, quiet: bool = False) -> dict[str, Site]:
    """Build what has changed; what each host is to use. Raises Refused for the first that fails, when all others have
    been ended. A host's `site/` is replaced whole, at the end; one that fails leaves the one before.
    """
    site = _Site(plan, quiet)
    with _hear_the_end(), ThreadPoolExecutor(max_workers=len(plan.builds)) as pool:
        try:
            futures = [pool.submit(site.build, build) for build in plan.builds]
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done() and (error := future.exception()) is not None:
                    raise error
        except BaseException:
            site.give_up()
            raise
        return {build.host: future.result() for build, future in zip(plan.builds, futures, strict=True)}


class _Ended(BaseException):
    """TERM or HUP came: the builds have sessions of their own, so nobody else ends them."""


@contextlib.contextmanager
def _hear_the_end() -> Iterator[None]:
    """TERM and HUP unwind what runs here, and only then end this process."""
    numbers = (signal.SIGTERM, signal.SIGHUP)

    def heard(number: int, frame: object) -> None:
        raise _Ended(number)

    before = {number: signal.signal(number, heard) for number in numbers}
    try:
        yield
    except _Ended as ended:
        signal.signal(ended.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), ended.args[0])
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def what_is_there(plan: Prebuild) -> dict[str, Site]:
    """What was built before, fresh or not; nothing for a host that was never built for."""
    found = {}
    for build in plan.builds:
        folder = Path(plan.root) / build.folder
        if (folder / "site").is_dir() and (stamp := _stamp(folder)) is not None:
            found[build.host] = Site(build.site, str(stamp.get("python", "")), required=plan.stated)
    return found


def _stamp(folder: Path) -> dict[str, Any] | None:
    try:
        stamp = json.loads((folder / "stamp.json").read_text())
    except (OSError, ValueError):
        return None
    return stamp if isinstance(stamp, dict) else None


class _Site:
    """The building site: what runs at the moment, and the say."""

    def __init__(self, plan: Prebuild, quiet: bool) -> None:
        self.plan = plan
        self.quiet = quiet
        self.root = Path(plan.root)
        self._files = digest_of_files(plan)
        self._running: set[subprocess.Popen[bytes]] = set()
        self._over = False
        self._mutex = threading.Lock()

    def build(self, build: HostBuild) -> Site:
        began = time.monotonic()
        folder = self.root / build.folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            ignore = self.root / "target" / "cluster" / ".gitignore"
            if not ignore.exists():
                ignore.write_text("*\n")
            with open(folder / "lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)  # another fdl may be at it
                python, news = self._fresh_or_built(build, folder)
        except OSError as err:
            what = f"cannot build for {build.shown}"
            why = f"{err.filename or folder}: {err.strerror or err}"
            raise Refused("no-build", what, why, "make room or the folder writable, or --no-prebuild") from None
        if news and not self.quiet:
            news = f"{news} in {time.monotonic() - began:.1f} s" if news == "built" else news
            sys.stderr.write(f"fdl: prebuild for {build.shown}: {news}\n")  # one write: others speak at the same time
            sys.stderr.flush()
        return Site(build.site, python, required=self.plan.stated)

    def _fresh_or_built(self, build: HostBuild, folder: Path) -> tuple[str, str]:
        variant = libtorch.find(build.arch, self.root) if build.arch else None
        of_variant = json.dumps(variant.arch if variant else None, sort_keys=True)
        print_ = fingerprint(self.plan, build, of_variant, self._files)
        stamp = folder / "stamp.json"
        known = _stamp(folder)
        if known is not None and known.get("fingerprint") == print_ and (folder / "site").is_dir():
            return str(known.get("python", "")), "unchanged"
        fresh, site, old = folder / "site.new", folder / "site", folder / "site.old"
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        self._run(build, folder, variant)
        minor = folder / "python"
        python = minor.read_text().strip() if minor.exists() else ""
        shutil.rmtree(old, ignore_errors=True)
        if site.exists():
            site.rename(old)
        fresh.rename(site)
        shutil.rmtree(old, ignore_errors=True)
        temporary = folder / "stamp.new"
        temporary.write_text(json.dumps({"fingerprint": print_, "python": python}) + "\n")
        temporary.rename(stamp)
        return python, "built"

    def _run(self, build: HostBuild, folder: Path, variant: libtorch.Variant | None) -> None:
        plan = self.plan
        up = os.path.relpath(os.curdir, plan.place)  # from where the recipe runs back to the project
        base = up if plan.docker else plan.root
        added = {
            environ.BUILD_SITE: os.path.normpath(os.path.join(base, build.folder, "site.new")),
            environ.BUILD_HOST: build.host,
            environ.BUILD_ARCH: build.arch,
        }
        if _SETUPTOOLS not in os.environ and not plan.docker:
            added[_SETUPTOOLS] = str(_apart(folder))
        if variant is not None:
            added["LIBTORCH_PATH"] = str(variant.folder)
            if plan.docker and variant.folder.is_relative_to(self.root):  # the service mounts the project elsewhere
                added["LIBTORCH_PATH"] = os.path.join(base, variant.folder.relative_to(self.root))
            added["FDL_GPU_FEATURE"] = variant.feature
        minor = shlex.quote(os.path.normpath(os.path.join(base, build.folder, "python")))
        script = f"(\n{plan.line}\n) || exit $?\n{_MINOR} >{minor} || true"
        argv = ["sh", "-c", script]
        if plan.docker:
            inner = argv if plan.place == os.curdir else ["sh", "-c", 'cd -- "$0" && exec "$@"', plan.place, *argv]
            argv = container.compose_argv(None, plan.root, plan.docker, list(added), [], inner, "build", tty=False)
        elif variant is not None:
            added.update(libtorch.environment(variant, os.environ))
        with open(folder / "build.log", "wb") as log:
            code = self._until_ended(argv, {**os.environ, **added}, log.fileno())
        if code:
            lines = (folder / "build.log").read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
            told = "".join(f"\n  {line}" for line in lines)
            how = f"ended by signal {-code}" if code < 0 else f"exit {code}"
            raise Refused(
                "no-build",
                f"cannot build for {build.shown}",
                f"the recipe failed ({how}); no host was dialled{told}",
                f"mend it ({folder}/build.log has all of it), say `build:` of the command, or --no-prebuild",
            )

    def _until_ended(self, argv: list[str], env: dict[str, str], log: int) -> int:
        with self._mutex:
            if self._over:
                return 1
            process = subprocess.Popen(
                argv,
                cwd=self.root if self.plan.docker else self.root / self.plan.place,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            self._running.add(process)
        try:
            return process.wait()
        finally:
            with self._mutex:
                self._running.discard(process)

    def give_up(self) -> None:
        """End every build that still runs: TERM, then KILL."""
        with self._mutex:
            self._over = True
            running = list(self._running)
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in running:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, number)
            end = time.monotonic() + _GRACE
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, end - time.monotonic()))


def _apart(folder: Path) -> Path:
    """Settings with which setuptools builds in `folder` instead of the source."""
    base = folder / "work"
    shutil.rmtree(base, ignore_errors=True)
    base.mkdir()
    settings = folder / "setuptools.cfg"
    settings.write_text(f"[build]\nbuild_base = {base}\n\n[egg_info]\negg_base = {base}\n")
    return settings
