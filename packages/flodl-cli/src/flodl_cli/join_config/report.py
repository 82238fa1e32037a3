"""What a wizard did or found: one dataclass, for people and as JSON (additive only). No secret is ever part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flodl_cli.join_config.door_test import Tried
from flodl_cli.join_config.farm import DOORS, Farm
from flodl_cli.join_config.freshness import Freshness
from flodl_cli.join_config.installing import Installed
from flodl_cli.join_config.preflight import Finding
from flodl_cli.join_config.steps import Step, as_text
from flodl_wire.address import Address
from flodl_wire.faults import printable


@dataclass(frozen=True)
class FileState:
    """`state`: new, changed, unchanged, removed."""

    path: str
    state: str
    secret: bool = False


@dataclass
class Report:
    farm: dict[str, Any]
    overlay: dict[str, str]
    credentials: dict[str, str]  # key, token: made, kept, rotated
    files: list[FileState]
    freshness: Freshness
    preflight: list[Finding]
    install: Installed | None
    steps: list[Step]
    notes: list[str] = field(default_factory=list)
    dry_run: bool = False

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def farm_dict(farm: Farm) -> dict[str, Any]:
    """What may be shown of a farm."""
    return {
        "label": farm.label,
        "door": farm.door,
        "controller": str(farm.controller),
        "user": farm.controller.user,
        "host": farm.controller.host,
        "port": farm.controller.port,
        "run_port": farm.run_port,
        "served": farm.served if farm.door == "b" else None,
        "data": farm.data if farm.door == "a" else None,
    }


_MARK = {"ok": "ok   ", "gap": "GAP  ", "trap": "TRAP ", "note": "note "}


def findings_text(findings: Sequence[Finding]) -> str:
    lines = ["this box, for that door:"]
    for each in findings:
        lines.append(f"  {_MARK[each.state]} {each.text}")
        lines += [f"          {line}" for line in each.fix]
    return printable("\n".join(lines))


def render(report: Report) -> str:
    """Everything but the findings, which are said before anything is written."""
    farm = report.farm
    lines = [f"farm {farm['label']}: door {farm['door']} at {farm['controller']} ({DOORS[farm['door']]})"]
    lines.append(f"  key {report.credentials['key']}, token {report.credentials['token']}")
    lines.append(f"  {report.overlay['state']:<10} {report.overlay['path']}{_behind(report.overlay['note'])}")
    marks = {True: "   (secret: mode 600)", False: ""}
    lines += [f"  {each.state:<10} {each.path}{marks[each.secret]}" for each in report.files]
    lines += [f"  note: {each}" for each in report.notes]
    lines.append(f"freshness: {freshness_text(report.freshness, publishes=farm['door'] == 'b')}")
    if report.install is not None:
        words = {"installed": "the key's line is now in", "kept": "the key's line is in"}
        lines.append(f"  {words[report.install.state]} {report.install.path}")
        lines += [f"  sshd ignores it until: {line}" for line in report.install.chmod]
    if report.dry_run:
        lines.append("dry run: nothing was written")
    else:
        lines += ["", "now, in this order (install-notes.md has them too):", as_text(report.steps)]
    return printable("\n".join(lines))


def _behind(text: str) -> str:
    return f"   ({text})" if text else ""


def freshness_text(fresh: Freshness, *, publishes: bool) -> str:
    parts = [f"key {age(fresh.key_s)} old" if fresh.key_s is not None else "no key yet"]
    parts.append(f"its line {_LINE[fresh.authorized_keys]}")
    if fresh.dropin != "none":
        parts.append(f"drop-in {_DROPIN[fresh.dropin]}")
    if publishes:
        published = fresh.published_s
        parts.append(f"run published {age(published)} ago" if published is not None else "no run published")
    return ", ".join(parts)


_LINE = {
    "installed": "installed",
    "absent": "not installed",
    "differs": "installed, but not as it is here now",
    "retired": "not installed, but a rotated key's still is",
    "unknown": "not looked for",
}
_DROPIN = {"installed": "installed", "absent": "not installed", "differs": "installed, but not as it is here now"}


def age(seconds: float) -> str:
    """ "3 h", "2 d": one number is enough to tell fresh from stale."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def door_text(farm: Farm, dialled: str, tried: Sequence[Tried]) -> str:
    at = f"{farm.controller.user}@{Address(dialled, farm.controller.port)}"
    lines = [f"door {farm.door} of the farm {farm.label}, tried with its own key at {at}"]
    for each in tried:
        lines.append(f"  {each.state:<8} {each.name}: {each.text}")
        if each.fix and each.state != "held":
            lines.append(f"           fix: {each.fix}")
    bad = [each for each in tried if each.state in ("OPEN", "SHUT")]
    lines.append(f"{len(bad)} of {len(tried)} did not hold" if bad else "the door holds")
    return printable("\n".join(lines))
