"""The audit for people: a row a host, then what is wrong. Green boxes get their row and nothing else."""

from __future__ import annotations

from flodl_probe.finding import Finding
from flodl_probe.report import HostReport, Report
from flodl_wire.faults import printable

_HEAD = ("HOST", "VERDICT", "DEVICES", "TORCH", "NCCL", "WAY TO THE CONTROLLER", "DATA")


def render(report: Report, verbose: bool = False) -> str:
    rows = [_HEAD, *(_row(host) for host in report.hosts)]
    shown = [index for index in range(len(_HEAD)) if index < 3 or any(row[index] not in ("", "-") for row in rows[1:])]
    widths = {index: max(len(row[index]) for row in rows) for index in shown}
    lines = []
    if report.hosts:
        lines = ["  ".join(row[index].ljust(widths[index]) for index in shown).rstrip() for row in rows]
    for host in report.hosts:
        lines += _lines(host.host, host.findings, verbose)
    lines += _lines("all hosts" if len(report.hosts) > 1 else "config", report.findings, verbose)
    return "\n".join(printable(line) for line in lines)


def _row(host: HostReport) -> tuple[str, ...]:
    name = f"{host.host} (controller)" if host.role == "controller" else host.host
    if not host.reached:
        return (name, "unreached", "-", "-", "-", "-", "-")
    road = host.road
    way = "-" if road is None else road.answer
    if road is not None and road.answer in ("probe", "window"):
        way = road.interface or road.kind
    elif way == "refused" and not any(found.check == "road" and found.level != "ok" for found in host.findings):
        way = "open"
    data = host.data_path
    return (
        name,
        host.level,
        _devices(host),
        host.libtorch.info.get("torch", "-"),
        host.nccl.version or (f"in {host.nccl.via_docker}" if host.nccl.via_docker else "-"),
        way,
        (data.fs_type or "-") if data and data.exists else "-",
    )


def _devices(host: HostReport) -> str:
    if host.role == "controller":
        return "-"
    if host.devices.startswith("cpu"):
        return host.devices
    names: dict[str, int] = {}
    for gpu in host.gpus:
        names[gpu.label()] = names.get(gpu.label(), 0) + 1
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in names.items()) or "none"


def _lines(name: str, findings: list[Finding], verbose: bool) -> list[str]:
    lines = []
    for found in findings:
        if found.level == "ok" and not verbose:
            continue
        lines.append(f"{found.level}: {name}: {_one_line(found.sentence())}")
        if found.fix:
            lines.append(f"  fix: {_one_line(found.fix)}")
    return lines


def _one_line(text: str) -> str:
    """Text from another box may not look like lines of ours."""
    return " ".join(text.split())
