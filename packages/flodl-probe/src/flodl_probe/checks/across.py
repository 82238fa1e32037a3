"""What only the comparison of hosts shows."""

from __future__ import annotations

from collections.abc import Callable

from flodl_probe.checks.nccl import minor
from flodl_probe.device import NVIDIA
from flodl_probe.finding import Finding, error, ok, warning
from flodl_probe.report import HostReport


def check_across(hosts: list[HostReport]) -> list[Finding]:
    ranks = [host for host in hosts if host.reached and host.role != "controller"]
    if len(hosts) < 2:
        return []
    return [
        *_nccl(ranks),
        *_torch(ranks),
        *_vendors(ranks),
        *_mtu(ranks),
        *_python(ranks),
        *_releases([host for host in hosts if host.reached]),
    ]


def _groups(hosts: list[HostReport], of: Callable[[HostReport], str | None]) -> dict[str, list[str]]:
    """value -> the hosts that have it; hosts without a value are left out."""
    groups: dict[str, list[str]] = {}
    for host in hosts:
        value = of(host)
        if value:
            groups.setdefault(value, []).append(host.host)
    return groups


def _spoken(groups: dict[str, list[str]]) -> str:
    return "; ".join(f"{value} on {', '.join(names)}" for value, names in sorted(groups.items()))


def _nccl(hosts: list[HostReport]) -> list[Finding]:
    """Hosts that give NVIDIA GPUs must load the same major.minor, or NCCL refuses (or hangs) at its first call."""
    giving = [host for host in hosts if not host.devices.startswith("cpu") and not host.nccl.via_docker]
    giving = [host for host in giving if any(gpu.vendor == NVIDIA for gpu in host.gpus)]
    groups = _groups(giving, lambda host: minor(host.nccl.version) if host.nccl.version else None)
    if len(groups) < 2:
        return [ok("nccl-skew", f"NCCL {next(iter(groups))} everywhere")] if groups else []
    newest = max(groups, key=lambda version: [int(part) if part.isdigit() else 0 for part in version.split(".")])
    archs = sorted({gpu.arch for host in giving for gpu in host.gpus if gpu.arch})
    dotted = ";".join(f"{arch[2:-1]}.{arch[-1]}" for arch in archs if arch.startswith("sm"))
    build = f"fdl nccl build --tag v{newest}{f' --archs {chr(34)}{dotted}{chr(34)}' if dotted else ''}"
    return [
        error(
            "nccl-skew",
            f"NCCL differs: {_spoken(groups)}",
            "nccl_* modes and DDP over NCCL need one major.minor on all hosts",
            f"the same torch everywhere; or one library for all ({build}), in env: LD_PRELOAD: of each",
        )
    ]


def _torch(hosts: list[HostReport]) -> list[Finding]:
    """The release, without what it was built for: CUDA here and ROCm there is what mixed fleets look like."""

    def release(host: HostReport) -> str | None:
        version = host.libtorch.info.get("torch", "")
        return version.partition("+")[0] or None

    groups = _groups(hosts, release)
    if len(groups) < 2:
        return [ok("torch-skew", f"torch {next(iter(groups))} everywhere")] if groups else []
    newest = max(groups, key=lambda version: [int(part) if part.isdigit() else 0 for part in version.split(".")])
    why = "the same script may train differently, and checkpoints may not load"
    fix = f"pip install torch=={newest} on the others"
    return [warning("torch-skew", f"torch differs: {_spoken(groups)}", why, fix)]


def _vendors(hosts: list[HostReport]) -> list[Finding]:
    groups: dict[str, list[str]] = {}
    for host in hosts:
        for vendor in sorted({gpu.vendor for gpu in host.gpus}) if not host.devices.startswith("cpu") else []:
            groups.setdefault(vendor, []).append(host.host)
    if len(groups) < 2:
        return []
    why = "NCCL cannot mix vendors"
    return [warning("vendors", f"GPUs of two vendors: {_spoken(groups)}", why, "use a cpu_* mode, which can")]


def _mtu(hosts: list[HostReport]) -> list[Finding]:
    def mtu(host: HostReport) -> str | None:
        road = host.road.interface if host.road and host.road.kind == "direct" else None
        entry = next((entry for entry in host.interfaces if entry.name == road and road != "lo"), None)
        return str(entry.mtu) if entry and entry.mtu else None

    groups = _groups(hosts, mtu)
    if len(groups) < 2:
        return []
    why = "large packets between them may vanish without a word"
    return [warning("mtu-skew", f"MTU differs: {_spoken(groups)}", why, "set the same on all hosts and the switch")]


def _python(hosts: list[HostReport]) -> list[Finding]:
    """Minor versions; patch levels are nobody's business."""
    groups = _groups(hosts, lambda host: minor(host.python) if host.python else None)
    if len(groups) < 2:
        return []
    fix = "use one minor version where a script pickles between hosts"
    return [ok("python-skew", f"Python differs: {_spoken(groups)}; {fix}")]


def _releases(hosts: list[HostReport]) -> list[Finding]:
    """Protocol versions must be equal; releases should."""
    protocols = _groups(hosts, lambda host: str(host.protocol) if host.protocol else None)
    if len(protocols) > 1:
        fix = "pip install --upgrade flodl-cli flodl-window flodl-agent flodl-planes, on every host"
        why = "hosts of another protocol are refused at the door"
        return [error("release-skew", f"flodl's protocol differs: {_spoken(protocols)}", why, fix)]
    releases = _groups(hosts, lambda host: host.probe or None)
    if len(releases) > 1:
        why = "keys that an older one does not know are missing in its row"
        fix = "pip install --upgrade flodl-probe, on every host"
        return [warning("release-skew", f"flodl-probe differs: {_spoken(releases)}", why, fix)]
    return []
