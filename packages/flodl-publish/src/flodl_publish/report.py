"""What a publish did, or would do: one dataclass, for people and as JSON (additive only)."""

from __future__ import annotations

import shlex
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flodl_wire.faults import printable

SHOWN = 10  # of what was left out; --json has all


@dataclass
class Report:
    tree: str
    served: str
    built: bool
    toolchain: str
    args: list[str]
    run: str
    digest: dict[str, Any] | None
    origin: str
    published_epoch: int
    host: str
    worker_specs: dict[str, str]  # plain, rrsync
    cwd: str = ""
    build: str = ""
    bin: str = ""
    files: int = 0
    links: int = 0
    bytes: int = 0
    copied: int = 0
    removed: int = 0
    largest: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, str]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    gates: list[dict[str, Any]] = field(default_factory=list)
    by: str = ""  # git or walk: who said what belongs to the tree
    dry_run: bool = False
    seconds: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def worker_specs(user: str, host: str, served: Path) -> dict[str, str]:
    """The two spellings for a worker's `source.from`: behind `rrsync -ro <served>` paths start in the served folder."""
    at = f"{user}@{host}" if user else host
    return {"plain": f"rsync://{at}:{served / 'tree'}", "rrsync": f"rsync://{at}:/tree"}


def render(report: Report) -> str:
    verb = "would publish" if report.dry_run else "published"
    head = f"{verb} {report.files} file{'s' * (report.files != 1)}, {size(report.bytes)}, from {report.origin}"
    lines = [head]
    if not report.dry_run:
        lines.append(f"  {report.copied} copied, {report.removed} removed, the rest unchanged; {report.seconds:.1f} s")
    lines += [
        f"  run        {report.run}" if not report.dry_run else "  (dry run: nothing was touched)",
        f"  tree       {report.tree}",
        f"  in         {report.cwd or 'its root'}",
        f"  build      {report.build or '(nothing to build)'}",
        f"  runs       {shlex.join([report.bin, *report.args])}",
    ]
    for gate in report.gates:
        against = f" against {gate['variant']}" if gate["variant"] else ""
        lines.append(f"  gate       passed{against}: {gate['recipe']}, {gate['seconds']:.1f} s")
    if not report.built and not report.dry_run:
        lines.append("  NOT BUILT  --no-build: nothing has compiled this tree, and the manifest says so")
    if report.largest:
        lines.append("  largest    " + ", ".join(f"{each['path']} {size(each['bytes'])}" for each in report.largest))
    if report.left_out:
        lines.append(f"  left out   ({len(report.left_out)})")
        lines += [f"    {each['path']}: {each['why']}" for each in report.left_out[:SHOWN]]
        if len(report.left_out) > SHOWN:
            lines.append(f"    … and {len(report.left_out) - SHOWN} more (--json has all)")
    lines += [f"  warning    {each}" for each in report.warnings]
    lines += [
        "  workers take it with source.from (or --source), by the key they hold:",
        f"    plain key                    {report.worker_specs['plain']}",
        f"    rrsync -ro {shlex.quote(report.served)}   {report.worker_specs['rrsync']}",
    ]
    return printable("\n".join(lines))


def size(count: int) -> str:
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000 or unit == "GB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return ""
