"""Plain `flodl-probe`: is this box fit, or every host of the cluster."""

from __future__ import annotations

import argparse

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
    return run(options)


def run(options: argparse.Namespace) -> int:
    import math
    import sys

    from flodl_probe import blocks, plan  # here, so that --help need not wait for them
    from flodl_probe.audit import audit
    from flodl_wire.messages import encode_message

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
        sys.stdout.buffer.write(encode_message(report) + b"\n")
    else:
        from flodl_probe.table import render

        print(render(report, options.verbose or _asked_for_more()))
    return exits.NOT_DONE if report.level == "error" else exits.DONE


def _asked_for_more() -> bool:
    import os

    return os.environ.get(environ.VERBOSITY, "") in ("verbose", "debug", "trace", "2", "3", "4")
