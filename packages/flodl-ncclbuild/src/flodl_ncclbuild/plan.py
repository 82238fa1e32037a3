"""What a build will do, decided before anything runs: paths, commands, and where each choice came from. Pure."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from flodl_ncclbuild import archs as cards
from flodl_ncclbuild import project
from flodl_ncclbuild.tag import Version
from flodl_ncclbuild.toolchain import Toolchain
from flodl_wire.faults import Refused

REPOSITORY = "https://github.com/NVIDIA/nccl.git"
DOCKERFILE = Path(__file__).parent / "image" / "Dockerfile.nccl.source"
# What must be free for objects and library. Not measured, a guess on the safe side: NVIDIA's own library for seven
# kinds of card has some 400 MB, and its objects lie around twice, alone and linked for the device.
DISK_BASE = 1 << 30
DISK_EACH = 256 << 20


class Native(NamedTuple):
    """The road through the nvcc of this box."""

    toolchain: Toolchain


class Docker(NamedTuple):
    """The road through a container. `user` is "UID:GID" for --user; None where the engine is rootless."""

    cuda: str
    image: str
    user: str | None
    container: str  # the name by which it can be ended


class Step(NamedTuple):
    name: str  # image, source, make
    doing: str  # for people
    argv: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    version: Version
    tag: str
    tag_from: str
    archs: tuple[int, ...]
    archs_from: str
    road: Native | Docker
    jobs: int
    source: Path | None
    output: Path  # the library
    log: Path
    work: Path  # all that lies around while it builds; removed at the end, whatever the end
    steps: tuple[Step, ...]
    disk_needed: int  # bytes, about
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, object]:
        """For `--json`: additive only."""
        docker = self.road if isinstance(self.road, Docker) else None
        cuda = self.road.toolchain.version if isinstance(self.road, Native) else self.road.cuda
        return {
            "version": str(self.version),
            "tag": self.tag,
            "tag_from": self.tag_from,
            "archs": [cards.name(arch) for arch in self.archs],
            "archs_from": self.archs_from,
            "gencode": cards.gencode(self.archs),
            "road": "docker" if docker else "native",
            "cuda": cuda,
            "image": docker.image if docker else None,
            "jobs": self.jobs,
            "source": str(self.source) if self.source else None,
            "output": str(self.output),
            "log": str(self.log),
            "disk_needed_bytes": self.disk_needed,
            "steps": [{"name": step.name, "argv": list(step.argv)} for step in self.steps],
            "notes": list(self.notes),
        }

    def text(self) -> str:
        """For people; each command as one line that a shell takes."""
        road = (
            f"native, CUDA {self.road.toolchain.version} at {self.road.toolchain.home}"
            if isinstance(self.road, Native)
            else f"docker, image {self.road.image}"
        )
        lines = [
            f"NCCL     {self.version}: {self.tag_from}",
            f"archs    {cards.listed(self.archs)}, and PTX of the last: {self.archs_from}",
            f"road     {road}",
            f"source   {self.source or f'{REPOSITORY} at {self.tag}'}",
            f"jobs     {self.jobs}",
            f"output   {self.output}",
            f"log      {self.log}",
            f"disk     about {self.disk_needed / 1e9:.1f} GB while it builds",
            *(f"{i}        {shlex.join(step.argv)}" for i, step in enumerate(self.steps, 1)),
            *(f"note     {note}" for note in self.notes),
        ]
        return "\n".join(lines) + "\n"


def make_plan(
    *,
    version: Version,
    tag: str,
    tag_from: str,
    archs: tuple[int, ...],
    archs_from: str,
    road: Native | Docker,
    builds: Path,
    jobs: int = 6,
    source: Path | None = None,
    notes: tuple[str, ...] = (),
) -> Plan:
    """`builds` and `source` are absolute. Raises Refused for cards that nvcc cannot build and for paths that neither
    make nor LD_PRELOAD can take."""
    name = f"v{version}-{cards.spelled(archs)}"
    output = project.library_in(builds / name)
    work = builds / f".{name}.part"
    if re.search(r"[\s:]", str(output)):
        why = "LD_PRELOAD, which is to name the library, splits at spaces and colons"
        raise Refused("bad-path", f"cannot build into {builds}", why, "run it from a folder whose path has neither")
    if isinstance(road, Native):
        _require_native(road.toolchain, archs, source)
        steps = _native_steps(road.toolchain, tag, archs, jobs, source, work)
    else:
        if source is not None and ":" in str(source):
            why = "docker splits a volume at colons"
            raise Refused("bad-path", f"cannot build from {source}", why, "move it to a folder without one")
        steps = _docker_steps(road, tag, archs, jobs, source, work)
    return Plan(
        version=version,
        tag=tag,
        tag_from=tag_from,
        archs=archs,
        archs_from=archs_from,
        road=road,
        jobs=jobs,
        source=source,
        output=output,
        log=builds / f"{name}.log",
        work=work,
        steps=steps,
        disk_needed=DISK_BASE + DISK_EACH * len(archs),
        notes=notes,
    )


def _require_native(toolchain: Toolchain, archs: tuple[int, ...], source: Path | None) -> None:
    cards.require(
        archs,
        toolchain.archs,
        f"nvcc {toolchain.version} at {toolchain.home}",
        "set CUDA_HOME to a toolkit that builds them all, or build in Docker, which chooses one (leave out --native)",
    )
    for path in (toolchain.home, source):
        if path is not None and re.search(r"\s", str(path)):
            raise Refused("bad-path", f"cannot build with {path}", "make splits paths at spaces", "move or link it")


def _clone(tag: str, into: str) -> tuple[str, ...]:
    return ("git", "clone", "--depth", "1", "--branch", tag, REPOSITORY, into)


def _make(tree: str, jobs: int, build: str, cuda_home: str, archs: tuple[int, ...]) -> tuple[str, ...]:
    return (
        *("make", "-C", tree, f"-j{jobs}", "src.build"),
        f"BUILDDIR={build}",
        f"CUDA_HOME={cuda_home}",
        f"NVCC_GENCODE={cards.gencode(archs)}",
    )


def _native_steps(
    toolchain: Toolchain, tag: str, archs: tuple[int, ...], jobs: int, source: Path | None, work: Path
) -> tuple[Step, ...]:
    tree = str(source or work / "source")
    fetch = () if source else (Step("source", f"fetching NCCL {tag}", _clone(tag, tree)),)
    make = _make(tree, jobs, str(work / "build"), str(toolchain.home), archs)
    return (*fetch, Step("make", f"compiling for {cards.listed(archs)}", make))


def _docker_steps(
    road: Docker, tag: str, archs: tuple[int, ...], jobs: int, source: Path | None, work: Path
) -> tuple[Step, ...]:
    """The image of compilers, then the tree and the compilation in containers of it; the last has no network."""
    image = "flodl-ncclbuild:" + re.sub(r"[^a-z0-9_.-]+", "-", road.image.lower())[-100:].lstrip(".-")
    build = ("docker", "build", "--file", str(DOCKERFILE), "--build-arg", f"BASE={road.image}", "--tag", image)
    run: tuple[str, ...] = ("docker", "run", "--rm", "--init", "--name", road.container, "--env", "HOME=/nccl")
    run += ("--security-opt", "label=disable")  # SELinux would keep the container out of the folders it is given
    run += ("--user", road.user) if road.user else ()
    run += ("--volume", f"{work}:/nccl")
    tree = "/nccl/source"
    doing = f"preparing compilers from {road.image} (several GB at first)"
    steps = [Step("image", doing, (*build, str(DOCKERFILE.parent)))]
    if source is None:
        steps.append(Step("source", f"fetching NCCL {tag}", (*run, image, *_clone(tag, tree))))
    else:
        tree = "/source"
        run += ("--volume", f"{source}:/source:ro")
    make = _make(tree, jobs, "/nccl/build", "/usr/local/cuda", archs)
    steps.append(Step("make", f"compiling for {cards.listed(archs)}", (*run, "--network", "none", image, *make)))
    return tuple(steps)
