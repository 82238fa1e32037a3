"""Every check of one box, and the report that comes of it."""

from __future__ import annotations

from collections.abc import Callable

from flodl_probe.checks import data, deep, devices, health, nccl, network, system, tooling, torch_fit
from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error
from flodl_probe.report import HostReport, LibtorchReport, NcclReport
from flodl_wire import preface

CHECKS: tuple[Callable[[Facts], list[Finding]], ...] = (
    devices.check_devices,
    devices.check_driver_agreement,
    health.check_health,
    health.check_processes,
    torch_fit.check_libtorch,
    torch_fit.check_torch,
    torch_fit.check_arch,
    nccl.check_nccl,
    deep.check_deep,
    data.check_data,
    system.check_shm,
    system.check_limits,
    system.check_python,
    tooling.check_tools,
    tooling.check_project,
    tooling.check_docker,
    network.check_interface,
    network.check_mtu,
    network.check_names,
    network.check_road,
    network.check_clock,
    network.check_ports,
)


def judge(facts: Facts) -> list[Finding]:
    """All findings. A check that breaks is a finding itself: the others must still be heard."""
    found: list[Finding] = []
    for check in CHECKS:
        try:
            found += check(facts)
        except Exception as err:
            found.append(error("probe", f"{check.__name__} broke", f"{type(err).__name__}: {err}", "report it, please"))
    return found


def report_on(facts: Facts, probe: str, seconds: float = 0.0) -> HostReport:
    first = facts.nccl[0] if facts.nccl else None
    made = HostReport(
        facts.host,
        "ok",
        facts.asked.role,
        probe=probe,
        protocol=preface.VERSION,
        seconds=round(seconds, 3),
        devices=facts.asked.devices,
        gpus=facts.gpus,
        processes=facts.processes,
        driver=facts.driver,
        libtorch=LibtorchReport(
            _info(facts), facts.libtorch.valid_dir if facts.libtorch else None, torch_fit.archs_match(facts)
        ),
        nccl=NcclReport(
            first.path if first else None,
            first.version if first else None,
            [library.path for library in facts.nccl],
            facts.asked.docker,
        ),
        data_path=facts.data,
        interfaces=facts.interfaces,
        road=facts.road,
        python=facts.box.python,
        packages=facts.packages,
        deep=facts.deep,
    )
    made.add(judge(facts))
    return made


def _info(facts: Facts) -> dict[str, str]:
    info = dict(facts.libtorch.info) if facts.libtorch else {}
    torch = facts.torch
    if torch is not None:
        told = {
            "torch": torch.version,
            "cuda": torch.cuda,
            "rocm": torch.hip,
            "nccl": torch.nccl,
            "archs": " ".join(torch_fit.compiled_for(facts)),
            "source": torch.source,
            "site": torch.site,
        }
        info = {**{key: value for key, value in told.items() if value}, **info}
    return info
