"""Plain `flodl-probe`: is this box fit, or every host of the cluster."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from pathlib import Path

from flodl_probe import blocks, plan
from flodl_probe.checks.across import check_across
from flodl_probe.checks.all_checks import report_on
from flodl_probe.fleet import Fleet
from flodl_probe.reading import gathering
from flodl_probe.release import version
from flodl_probe.report import Report, assemble
from flodl_wire import deadlines, environ, exits
from flodl_wire.faults import usage

TIMEOUT = 30.0  # seconds a host may take; scaled like every deadline of the network
DEEP_TIMEOUT = 180.0  # torch is imported on each


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-probe",
        description="Say whether this box is fit to train, or, when a cluster block is given (by fdl, --config or "
        "--cluster), whether each of its hosts is, all asked at once over ssh. Read-only.",
        epilog="Also: `flodl-probe devices` lists the GPUs alone, `flodl-probe schema` prints the schema of --json. "
        "Exit codes: 0 no errors (warnings do not count), 1 errors, 2 usage.",
    )
    add = made.add_argument
    add("--json", action="store_true", help="one document: every host with what it has and all findings")
    add("--devices", metavar="SPEC", help="what shall train: all (default), 0,1 or cpu:2; over the config")
    add("--controller", metavar="HOST[:PORT]", help="walk the way to this controller, too")
    add("--data-path", metavar="DIR", help="the shared data folder, over the config")
    add("--skip-mount", action="store_true", help="do not look at the shared data folder")
    add("--libtorch-path", metavar="DIR", help="a libtorch variant, a folder of them, or an .active file")
    add("--docker", metavar="SERVICE", help="torch and NCCL come from the image of this compose service")
    add("--deep", action="store_true", help="import torch, run a kernel on each GPU and a sum over loopback")
    add("--timeout", type=float, metavar="S", help=f"seconds a host may take ({TIMEOUT:g}; --deep {DEEP_TIMEOUT:g})")
    add("--config", metavar="FILE", help="the config as JSON (fdl config show --json); - for stdin")
    add("--cluster", metavar="FILE", help="the config as YAML, e.g. fdl.cluster.yml (needs the extra [yaml])")
    add("--here", action="store_true", help="this box alone, whatever the config says of others")
    add("-v", "--verbose", action="store_true", help="show also what is as it should be")
    add("--version", action="store_true", help="the version of flodl-probe")
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    base = DEEP_TIMEOUT if options.deep else TIMEOUT
    timeout = deadlines.deadline(base) if options.timeout is None else options.timeout
    if not (math.isfinite(timeout) and timeout > 0):
        raise usage(f"cannot use --timeout {options.timeout}", "it must be a number of seconds above 0")
    if options.config is not None and options.cluster is not None:
        raise usage("cannot use --config and --cluster together", "each is the whole config", "give one")
    flags = plan.Flags(
        options.devices,
        options.data_path,
        options.libtorch_path,
        options.docker,
        options.controller,
        options.skip_mount,
        options.deep,
        timeout,
    )
    report = audit(blocks.read(options.config, options.cluster), flags, options.here)
    if options.json:
        import msgspec

        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    else:
        from flodl_probe.table import render

        print(render(report, options.verbose or _asked_for_more()))
    return exits.NOT_DONE if report.level == "error" else exits.DONE


def _asked_for_more() -> bool:
    return os.environ.get(environ.VERBOSITY, "") in ("verbose", "debug", "trace", "2", "3", "4")


def audit(given: blocks.Blocks, flags: plan.Flags, here_alone: bool) -> Report:
    here = gathering.own_name()
    if given.cluster is None or (here_alone and not _in_roster(given, flags, here)):
        planned = plan.alone(flags, given.join)
        return _alone(planned, flags)
    folder = Path(given.manifest).parent if given.manifest else None
    planned = plan.fleet(given.cluster, flags, here, gathering.manifest_hash(folder) if folder else None)
    if here_alone:
        planned.targets = [target for target in planned.targets if target.local]
        return _alone(planned, flags)
    if not planned.targets:
        return assemble([], planned.findings, version())
    hosts = Fleet(planned, here, str(folder) if folder else None, flags.timeout, version()).ask()
    return assemble(hosts, [*planned.findings, *check_across(hosts)], version())


def _in_roster(given: blocks.Blocks, flags: plan.Flags, here: str) -> bool:
    return any(target.local for target in plan.fleet(given.cluster, flags, here, None).targets)


def _alone(planned: plan.Plan, flags: plan.Flags) -> Report:
    began = time.monotonic()
    asked = planned.targets[0].question
    asked.patience = flags.timeout
    facts = gathering.gather(asked)
    return assemble([report_on(facts, version(), time.monotonic() - began)], planned.findings, version())
