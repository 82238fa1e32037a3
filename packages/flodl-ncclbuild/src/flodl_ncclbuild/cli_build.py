"""`flodl-ncclbuild build`: one libnccl for the cards of this box, or for those that are named."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flodl_wire import exits, outlets
from flodl_wire.faults import Fault, printable, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flodl_ncclbuild.plan import Plan


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-ncclbuild build",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Build NVIDIA's libnccl from source, into the project's\n"
        "libtorch/nccl/builds/v<version>-<archs>/lib/libnccl.so.2. The plan is printed before anything runs.",
        epilog="Exit codes: 0 built (or there already), 1 not built, 2 usage, 130 interrupted.",
    )
    made.add_argument("--tag", metavar="TAG", help="e.g. v2.27.5; without it the NCCL that the active torch asks for")
    made.add_argument("--archs", metavar="LIST", help='e.g. "6.1;12.0"; without it the GPUs of this box')
    made.add_argument("--jobs", metavar="N", type=_jobs, default=6, help="compilers at once (6)")
    made.add_argument("--source", metavar="DIR", type=Path, help="build this NCCL source tree, offline")
    road = made.add_mutually_exclusive_group()
    road.add_argument("--docker", action="store_true", help="in a container of NVIDIA's CUDA image (the default)")
    road.add_argument("--native", action="store_true", help="with the nvcc of CUDA_HOME, PATH or /usr/local/cuda")
    made.add_argument("--cuda", metavar="X.Y", help="CUDA of the container; else torch's, if that builds the archs")
    made.add_argument("--base-image", metavar="IMAGE", help="another image with that CUDA's nvcc, e.g. from a mirror")
    made.add_argument("--force", action="store_true", help="build again what is there")
    made.add_argument("--dry-run", action="store_true", help="print the plan, do nothing")
    made.add_argument("--json", action="store_true", help='one document: {"plan": {...}, "result": {...} or null}')
    return made


def _jobs(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError("must be a number, 1 or more")
    return int(text)


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    if options.native and (options.cuda or options.base_image):
        raise usage("cannot use --cuda or --base-image with --native", "they choose the container", "set CUDA_HOME")
    from flodl_ncclbuild import child, survey

    with child.signals_as_interrupts():
        plan = survey.plan_for(options)
        if options.dry_run:
            document = {"plan": plan.as_dict(), "result": None}
            print(json.dumps(document) if options.json else printable(plan.text().rstrip()))
            return exits.DONE
        print(printable(plan.text()), file=sys.stderr, flush=True)
        there = not options.force and _already(plan)
        if not there:
            from flodl_ncclbuild import build

            build.run(plan)
    outlets.work_is_done()
    _tell(plan, there, options.json)
    return exits.DONE


def _already(plan: Plan) -> bool:
    """True when the output is there and says that it is what was asked for."""
    from flodl_ncclbuild import library

    try:
        return plan.output.exists() and library.version_of(plan.output) == plan.version
    except Fault:
        return False


def _tell(plan: Plan, there: bool, as_json: bool) -> None:
    from flodl_ncclbuild import wiring

    path = str(plan.output)
    if as_json:
        result = {"path": path, "version": str(plan.version), "already": there, "env": {"LD_PRELOAD": path}}
        print(json.dumps({"plan": plan.as_dict(), "result": result}))
        return
    print("it is there already; --force builds it again" if there else f"built {printable(path)}", file=sys.stderr)
    print(f"below this host's entry of `workers:` (the library says that it is NCCL {plan.version}):", file=sys.stderr)
    print(wiring.block(plan.output), end="")
