"""What is built here for other hosts before a run is started, so that they need neither compiler nor index. Decides
only; building.py builds.

One folder per remote host and libtorch variant, `target/cluster/<host>/<arch>/`, in which `site/` is what the host puts
on PYTHONPATH: a plain folder of packages runs at whatever place the project is mounted there, a virtual environment
would not.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

from flodl_cli.command import Command
from flodl_wire.config import Cluster
from flodl_wire.faults import Refused

BELOW = os.path.join("target", "cluster")
NO_ARCH = "any"  # the folder of a host without `arch:`

# The project's own package without what it depends on: torch and its friends are each host's own. uv where this Python
# has no pip (environments made by uv have none).
RECIPE = """\
if python -m pip --version >/dev/null 2>&1; then
  exec python -m pip install --quiet --disable-pip-version-check --no-deps --target "$FLODL_BUILD_SITE" .
fi
exec uv pip install --quiet --python "$(command -v python)" --no-deps --target "$FLODL_BUILD_SITE" ."""

# Not what a build reads, and changed by every run or build.
_SKIPPED = {".git", ".hg", ".venv", "venv", "target", "runs", "__pycache__", ".fdl", "node_modules", "build", "dist"}
_SKIPPED |= {".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache", "libtorch"}


class HostBuild:
    """One build. `folder` is relative to the project's."""

    __slots__ = ("arch", "folder", "host", "shown")

    def __init__(self, host: str, arch: str) -> None:
        self.host = host
        self.arch = arch
        self.folder = os.path.join(BELOW, host.replace(os.sep, "_"), arch or NO_ARCH)
        self.shown = f"{host} ({arch})" if arch else host

    @property
    def site(self) -> str:
        return os.path.join(self.folder, "site")


class Prebuild:
    """All builds of one run: `line` is given to `sh` in the folder `place` (relative to `root`), once for each."""

    __slots__ = ("builds", "docker", "line", "place", "root", "stated")

    def __init__(self, root: str, place: str, line: str, stated: bool, docker: str | None) -> None:
        self.root = root
        self.place = place
        self.line = line
        self.stated = stated  # by `build:`; else it follows from the files
        self.docker = docker
        self.builds: list[HostBuild] = []


def plan_prebuild(root: str, command: Command, cluster: Cluster) -> Prebuild | None:
    """What to build for the remote hosts of `cluster` before `command` runs there; None when there is nothing to.

    `controller.docker` is the service it happens in, `controller.arch` the variant for hosts that name none.
    Raises Refused for an `arch:` that leads out of the folder.
    """
    from flodl_cli.cluster import is_local, resolve_local_hostname

    here = resolve_local_hostname()
    remote = [worker for worker in cluster.workers if not is_local(worker.host, here)]
    place = next((folder for folder in (command.folder, root) if installable(folder)), None)
    if not remote or (command.build is None and place is None):
        return None
    folder = command.folder if command.build is not None else place or root
    line = command.build if command.build is not None else RECIPE
    plan = Prebuild(root, os.path.relpath(folder, root), line, command.build is not None, cluster.controller.docker)
    for worker in remote:
        arch = worker.arch or cluster.controller.arch or ""
        if arch and (os.path.isabs(arch) or ".." in arch.split("/") or arch != os.path.normpath(arch)):
            index = cluster.workers.index(worker)
            what = f"cannot use cluster.workers[{index}].arch: {arch!r}"
            raise Refused("bad-config", what, "it names no variant below libtorch/", "write e.g. precompiled/cu128")
        plan.builds.append(HostBuild(worker.host, arch))
    return plan


def installable(folder: str) -> bool:
    """True for a Python project that says how it is built. (A pyproject.toml with settings of tools is none.)"""
    if os.path.isfile(os.path.join(folder, "setup.py")):
        return True
    try:
        with open(os.path.join(folder, "pyproject.toml"), encoding="utf-8", errors="replace") as file:
            lines = {line.strip() for line in file}
    except OSError:
        return False
    return "[build-system]" in lines and bool(lines & {"[project]", "[tool.poetry]"})


def fingerprint(plan: Prebuild, build: HostBuild, variant: str, files: str) -> str:
    """Of everything the build depends on: the recipe, who builds, for what, and the `files` of the project. `variant`:
    what is known of the libtorch variant.
    """
    builder = plan.docker or [sys.executable, sys.version]
    about = [plan.line, plan.place, builder, build.host, build.arch, variant, files]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def digest_of_files(plan: Prebuild) -> str:
    """Of the name, size and time of every file that a build may read."""
    said = hashlib.sha256()
    top = os.path.join(plan.root, plan.place)
    for folder, folders, files in os.walk(top):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.endswith(".egg-info"))
        for name in sorted(files):
            path = os.path.join(folder, name)
            try:
                facts = os.stat(path)
            except OSError:
                continue
            line = f"{os.path.relpath(path, top)}\0{facts.st_size}\0{facts.st_mtime_ns}\n"
            said.update(line.encode(errors="replace"))
    return said.hexdigest()
