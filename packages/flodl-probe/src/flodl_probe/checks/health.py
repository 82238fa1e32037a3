"""How the offered GPUs are: errors, heat, who is on them already."""

from __future__ import annotations

from flodl_probe.checks.devices import offered
from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning

HEALTH = "gpu-health"
BUSY = "gpu-processes"


def check_health(facts: Facts) -> list[Finding]:
    found = []
    for gpu in offered(facts):
        if gpu.ecc_uncorrected:
            found.append(
                error(
                    HEALTH,
                    f"GPU {gpu.index} has {gpu.ecc_uncorrected} uncorrected memory errors",
                    "results on it cannot be trusted",
                    f"sudo nvidia-smi -i {gpu.index} --gpu-reset; when they come back, replace the card",
                )
            )
        if gpu.remap_pending:
            found.append(
                warning(
                    HEALTH,
                    f"GPU {gpu.index} has bad memory rows that wait to be remapped",
                    "it happens at the next reset",
                    f"sudo nvidia-smi -i {gpu.index} --gpu-reset, with nothing running on it",
                )
            )
        if gpu.throttle:
            found.append(
                warning(
                    HEALTH,
                    f"GPU {gpu.index} is slowed down",
                    "; ".join(gpu.throttle),
                    "look at fans, air and the power cables",
                )
            )
    return found or ([ok(HEALTH, "no memory errors, not slowed down")] if offered(facts) else [])


def check_processes(facts: Facts) -> list[Finding]:
    found = []
    for gpu in offered(facts):
        here = [process for process in facts.processes if gpu.uuid and process.gpu == gpu.uuid]
        if here:
            listed = ", ".join(
                f"{process.name or 'a process'} (pid {process.pid}"
                + (f", {process.used_bytes >> 20} MiB)" if process.used_bytes else ")")
                for process in here[:4]
            ) + (f" and {len(here) - 4} more" if len(here) > 4 else "")
            found.append(
                warning(
                    BUSY,
                    f"GPU {gpu.index} is in use",
                    listed,
                    "let it end, or leave the GPU out of local_devices",
                )
            )
    return found or ([ok(BUSY, "nobody computes on them")] if offered(facts) else [])
