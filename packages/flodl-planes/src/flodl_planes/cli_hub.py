"""``flodl-planes hub``: the coordinator's process, started by the launcher with a spec on stdin and a pair to talk
over.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys

import msgspec

from flodl_wire.faults import Broken, Refused, usage
from flodl_wire.specs import HubSpec


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-planes hub",
        description="Coordinates one run: checks that the ranks fit, deals samples, averages, writes the checkpoint.",
        epilog="stdin holds the spec, one line of JSON. Exit codes: 0 training is done, 1 it is not.",
    )
    made.add_argument(
        "--pair", type=int, required=True, metavar="FD", help="inherited SOCK_SEQPACKET socket of the launcher"
    )
    return made


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    try:
        pair = socket.socket(fileno=args.pair)
        if pair.family != socket.AF_UNIX or pair.type != socket.SOCK_SEQPACKET:
            raise OSError("it is no SOCK_SEQPACKET pair")
    except OSError as err:
        raise usage(f"cannot use --pair {args.pair}", str(err), "flodl-window launch starts the hub") from None
    os.set_inheritable(args.pair, False)
    line = sys.stdin.buffer.readline()
    if not line.strip():
        raise Refused(
            "no-spec", "cannot coordinate a run", "stdin ended without a spec", "flodl-window launch starts the hub"
        )
    try:
        spec = msgspec.json.decode(line, type=HubSpec)
    except msgspec.MsgspecError as err:
        raise Broken(
            "bad-spec", "cannot read the hub's spec", str(err), "bring every tool to the same release"
        ) from None
    from flodl_planes.hub.process import Hub  # numpy and threads: only once the spec is known to be good

    return Hub(spec, pair).run()
