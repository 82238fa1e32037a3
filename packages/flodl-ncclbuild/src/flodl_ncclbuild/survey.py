"""Asking the box what a plan needs to know: only what the command line leaves open."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from flodl_ncclbuild import archs as cards
from flodl_ncclbuild import engine, local_gpus, project, tag, toolchain, toolkits, torch_nccl
from flodl_ncclbuild.plan import Docker, Native, Plan, make_plan
from flodl_wire.faults import Fault, Refused, Transient


def plan_for(options: argparse.Namespace) -> Plan:
    """The plan of a `flodl-ncclbuild build` with these options. Raises Refused, and Transient when no engine answers
    (under --dry-run that is a note)."""
    root = project.root()
    source = _source(options.source)
    version, git_tag, tag_from, torch_cuda = _version(options.tag, source, root)
    if options.archs is not None:
        archs, archs_from = cards.parse(options.archs), "--archs"
    else:
        archs, program = local_gpus.found()
        archs_from = f"the GPUs of this box, by {program}"
    notes: list[str] = []
    road: Native | Docker
    if options.native:
        road = Native(toolchain.find())
        toolchain.require_tools(git=source is None)
    else:
        choice = toolkits.choose(archs, asked=options.cuda, torch=torch_cuda or _torch_cuda(root))
        notes += [choice.note] if choice.note else []
        image = options.base_image or choice.toolkit.image
        road = Docker(choice.toolkit.cuda, image, f"{os.getuid()}:{os.getgid()}", f"flodl-nccl-{os.getpid()}")
        found = engine.ask()
        if isinstance(found, str):
            fault = Transient("no-engine", "cannot build in Docker", found, _without_docker(archs))
            if not options.dry_run:
                raise fault
            notes.append(f"{found}; {fault.fix}")
        elif found.rootless:
            road = road._replace(user=None)
    return make_plan(
        version=version,
        tag=git_tag,
        tag_from=tag_from,
        archs=archs,
        archs_from=archs_from,
        road=road,
        builds=project.builds(root),
        jobs=options.jobs,
        source=source,
        notes=tuple(notes),
    )


def _source(folder: Path | None) -> Path | None:
    if folder is None:
        return None
    tree = folder.absolute()
    if not (tree / "makefiles" / "version.mk").is_file():
        why = "it has no makefiles/version.mk" if tree.is_dir() else "there is no such folder"
        raise Refused("no-source-tree", f"cannot build from {tree}", why, "name the top folder of an NCCL source tree")
    return tree


def _version(stated: str | None, source: Path | None, root: Path) -> tuple[tag.Version, str, str, str | None]:
    """(version, git tag, where it was said, torch's CUDA where torch said it)."""
    if source is not None:
        version, git_tag = tag.from_tree((source / "makefiles" / "version.mk").read_text(errors="replace"), str(source))
        if stated is not None and tag.parse(stated)[0] != version:
            why = f"its makefiles/version.mk says {version}, and --tag {stated}"
            fix = "leave out --tag, or name another tree"
            raise Refused("wrong-source-tree", f"cannot build from {source}", why, fix)
        return version, git_tag, f"{source} says so itself", None
    if stated is not None:
        version, git_tag = tag.parse(stated)
        return version, git_tag, f"--tag {stated}", None
    asked = torch_nccl.asked(root)
    return asked.version, tag.tag_of(asked.version), asked.origin, asked.cuda


def _torch_cuda(root: Path) -> str | None:
    """Torch's CUDA when it is easily had; with the version stated, torch need not be here at all."""
    try:
        return torch_nccl.asked(root).cuda
    except Fault:
        return None


def _without_docker(archs: tuple[int, ...]) -> str:
    """The way on: `--native`, with what the toolkit of this box can do."""
    try:
        here = toolchain.find()
    except Fault:
        return "start Docker, or install a CUDA toolkit and use --native"
    lacking = tuple(arch for arch in archs if arch not in here.archs)
    found = f"CUDA {here.version} at {here.home}"
    if lacking:
        return f"start Docker; --native would use {found}, which cannot build {cards.listed(lacking)}"
    return f"use --native ({found} builds {cards.listed(archs)}), or start Docker"
