"""What torch itself said (`--deep`), against what the drivers say."""

from __future__ import annotations

from flodl_probe.checks.devices import offers_gpus
from flodl_probe.checks.nccl import minor
from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning

CHECK = "deep"


def check_deep(facts: Facts) -> list[Finding]:
    deep = facts.deep
    if deep is None:
        return []
    if deep.failure:
        fix = 'python -c "import torch" shows all of it'
        return [error(CHECK, "torch does not work here", deep.failure, fix)]
    found = []
    if deep.reduce:
        fix = "look for a firewall on lo"
        found.append(error(CHECK, "two ranks on this box cannot sum over loopback", deep.reduce, fix))
    found += [
        error(CHECK, f"GPU {device.index} ({device.name}) runs no kernel", device.text, "see the arch and driver lines")
        for device in deep.devices
        if not device.good
    ]
    listed = len(facts.gpus)
    if len(deep.devices) != listed and (offers_gpus(facts) or deep.devices):
        what = f"torch sees {len(deep.devices)} GPUs, the drivers list {listed}"
        why = "their views differ, so one of them is wrong"
        found.append(error(CHECK, what, why, "look at the driver lines, the masks, and which torch this is"))
    loaded = facts.nccl[0].version if facts.nccl else None
    if deep.nccl and loaded and minor(deep.nccl) != minor(loaded):
        found.append(
            warning(
                "nccl",
                f"torch loaded NCCL {deep.nccl} from {deep.nccl_path or '?'}",
                f"and {facts.nccl[0].path} ({loaded}) was expected",
                "set LD_PRELOAD in the worker's env: to the one you mean",
            )
        )
    return found or [ok(CHECK, f"torch {deep.version}: {len(deep.devices)} GPUs compute, a loopback sum is right")]
