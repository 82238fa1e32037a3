"""From config and flags to the whole report: this box alone, or every host of the cluster."""

from __future__ import annotations

import time
from pathlib import Path

from flodl_probe import plan
from flodl_probe.blocks import Blocks
from flodl_probe.checks.all_checks import report_on
from flodl_probe.reading import gathering
from flodl_probe.release import version
from flodl_probe.report import Report, assemble


def audit(given: Blocks, flags: plan.Flags, here_alone: bool) -> Report:
    """`here_alone`: whatever the config says of others. Raises Refused for flags that cannot be read."""
    here = gathering.own_name()
    if given.cluster is None:
        return _alone(plan.alone(flags, given.join))
    folder = Path(given.manifest).parent if given.manifest else None
    planned = plan.fleet(given.cluster, flags, here, gathering.manifest_hash(folder) if folder else None)
    if here_alone:
        ours = [target for target in planned.targets if target.local]
        return _alone(plan.Plan(ours, planned.findings) if ours else plan.alone(flags, given.join))
    if not planned.targets:
        return assemble([], planned.findings, version())

    from flodl_probe.checks.across import check_across
    from flodl_probe.fleet import Fleet

    hosts = Fleet(planned, here, str(folder) if folder else None, flags.timeout, version()).ask()
    return assemble(hosts, [*planned.findings, *check_across(hosts)], version())


def _alone(planned: plan.Plan) -> Report:
    began = time.monotonic()
    facts = gathering.gather(planned.targets[0].question)
    return assemble([report_on(facts, version(), time.monotonic() - began)], planned.findings, version())
