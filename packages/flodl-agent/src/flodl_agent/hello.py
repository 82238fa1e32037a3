"""What this host says of itself when it comes in, and what it checks before it dials."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import sys
from pathlib import Path

from flodl_wire.address import Address
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer, Hello
from flodl_wire.libtorch import Variant
from flodl_wire.specs import AgentSpec

_MANIFESTS = ("fdl.yaml", "fdl.yml", "fdl.json")  # in the order fdl looks for them


def check_project(spec: AgentSpec) -> str:
    """The sha256 of the project's manifest on this host ("" when it has none). Raises Refused: no such folder, or
    another manifest.
    """
    if spec.path is None:
        return ""
    project = Path(spec.path).expanduser()
    if not project.is_dir():
        raise Refused(
            "no-folder",
            f"cannot use {spec.host}",
            f"it has no folder {project}",
            "put the project there (git clone, rsync, a shared mount), or mend path: in fdl.yml",
        )
    manifest = next((project / name for name in _MANIFESTS if (project / name).is_file()), None)
    found = hashlib.sha256(manifest.read_bytes()).hexdigest() if manifest else ""
    if spec.manifest_hash and found != spec.manifest_hash:
        why = (
            f"{manifest} there is another file than the controller's"
            if manifest
            else f"there is no fdl.yml in {project}"
        )
        raise Refused(
            "other-manifest", f"cannot use {spec.host}", why, "bring that host's copy of the project up to date"
        )
    return found


def describe(spec: AgentSpec, offers: list[DeviceOffer], manifest_hash: str, variant: Variant | None = None) -> Hello:
    """Our hello. Two agents never send the same `agent`: it tells a re-join from a second box of the same name."""
    torch = variant.arch.get("torch", "") if variant else _torch_version()
    return Hello(
        host=spec.host,
        agent=os.urandom(8).hex(),
        devices=offers,
        libtorch=variant.label if variant else torch.partition("+")[2],
        torch_version=torch,
        python=".".join(map(str, sys.version_info[:3])),
        dataset_sig=spec.dataset_sig_hex or "",
        model_sig=spec.model_sig_hex or "",
        run_id=spec.run_id or "",
        argv=spec.args,
        manifest_hash=manifest_hash,
        boot_id=_first_line("/proc/sys/kernel/random/boot_id"),
        cores=cores(),
        road=spec.road,
        flodl=importlib.metadata.version("flodl-agent"),
        dialled="" if spec.roster_host else str(Address(spec.controller_host, spec.controller_port)),
    )


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _torch_version() -> str:
    """Of the torch beside this agent, e.g. 2.13.0+cu128; "" when there is none. Nothing is imported for it."""
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return ""


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError:
        return ""
