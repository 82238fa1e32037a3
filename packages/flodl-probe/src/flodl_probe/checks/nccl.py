"""The libnccl that ranks would load. Hosts without NVIDIA GPUs need none."""

from __future__ import annotations

from flodl_probe.checks.devices import offered
from flodl_probe.device import NVIDIA
from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning

CHECK = "nccl"


def check_nccl(facts: Facts) -> list[Finding]:
    if facts.asked.docker or not any(gpu.vendor == NVIDIA for gpu in offered(facts)):
        return []
    if not facts.nccl:
        if facts.torch is None or facts.torch.cuda is None:
            return []  # that torch is missing or blind is said already
        if facts.torch.nccl is None:
            return [ok(CHECK, "torch brings its own")]  # linked into it, as conda's builds do
        return [
            error(
                CHECK,
                "no libnccl is here",
                f"torch {facts.torch.version} asks for NCCL {facts.torch.nccl}",
                "pip install --force-reinstall torch",
            )
        ]
    first = facts.nccl[0]
    if first.version is None:
        return [
            error(
                CHECK,
                f"cannot load {first.path} ({first.source})",
                first.why,
                "build one that fits: fdl nccl build"
                if first.source == "LD_PRELOAD"
                else "pip install --force-reinstall torch",
            )
        ]
    wanted = facts.torch.nccl if facts.torch else None
    if wanted and minor(wanted) != minor(first.version):
        return [
            warning(
                CHECK,
                f"NCCL {first.version} would be loaded ({first.source}: {first.path})",
                f"torch was built with {wanted}",
                "right when every host loads the same one; else take it out of LD_PRELOAD or LD_LIBRARY_PATH",
            )
        ]
    return [ok(CHECK, f"NCCL {first.version} ({first.source})")]


def minor(version: str) -> str:
    """major.minor: what has to be equal on all hosts of a run."""
    return ".".join(version.split(".")[:2])
