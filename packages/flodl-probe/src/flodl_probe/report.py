"""The audit as a document: `flodl-probe --json` prints a `Report`, whose JSON Schema `flodl-probe schema` prints.

Additive only. A box that answers over ssh sends one `HostReport`; keys that an older probe does not have are defaults
here, and its `probe` tells.
"""

from __future__ import annotations

import msgspec

from flodl_probe.facts import DataPath, Deep, Driver, Gpu, GpuProcess, Interface, Road
from flodl_probe.finding import Finding, Level, worst
from flodl_probe.question import Role

VERSION = 1


class LibtorchReport(msgspec.Struct):
    """The torch that ranks on this host would use. `info`: torch, cuda or rocm, archs, source."""

    info: dict[str, str] = {}
    valid_dir: bool | None = None  # None: no libtorch variant is configured
    archs_match: bool | None = None  # None: nothing to match


class NcclReport(msgspec.Struct):
    library_path: str | None = None
    version: str | None = None
    all_found: list[str] = []
    via_docker: str | None = None


class HostReport(msgspec.Struct):
    """One host. `issues` and `warnings` are the findings of these levels as sentences."""

    host: str
    level: Level
    role: Role = "alone"
    reached: bool = True
    probe: str = ""  # version of flodl-probe there
    protocol: int = 0  # of flodl-wire there
    seconds: float = 0.0
    devices: str = "all"
    gpus: list[Gpu] = []
    processes: list[GpuProcess] = []
    driver: Driver = msgspec.field(default_factory=Driver)
    libtorch: LibtorchReport = msgspec.field(default_factory=LibtorchReport)
    nccl: NcclReport = msgspec.field(default_factory=NcclReport)
    data_path: DataPath | None = None
    interfaces: list[Interface] = []
    road: Road | None = None
    python: str = ""
    packages: dict[str, str] = {}
    deep: Deep | None = None
    findings: list[Finding] = []
    issues: list[str] = []
    warnings: list[str] = []

    def add(self, findings: list[Finding]) -> None:
        """More findings; level and sentences follow."""
        self.findings = [*self.findings, *findings]
        self.level = worst(found.level for found in self.findings)
        self.issues = [found.sentence() for found in self.findings if found.level == "error"]
        self.warnings = [found.sentence() for found in self.findings if found.level == "warning"]


class Report(msgspec.Struct):
    """All hosts, and what only their comparison (or the config itself) shows."""

    level: Level
    hosts: list[HostReport]
    findings: list[Finding] = []
    probe: str = ""
    v: int = VERSION


def assemble(hosts: list[HostReport], findings: list[Finding], probe: str) -> Report:
    level = worst([*(host.level for host in hosts), *(found.level for found in findings)])
    return Report(level, hosts, findings, probe)
