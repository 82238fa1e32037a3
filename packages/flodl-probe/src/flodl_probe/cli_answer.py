"""`flodl-probe answer`: for the probe on another box. A question on stdin, this box's report on stdout."""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from flodl_probe import answer
from flodl_probe.checks.all_checks import report_on
from flodl_probe.question import Question
from flodl_probe.reading import gathering
from flodl_probe.release import version
from flodl_wire import exits
from flodl_wire.faults import Broken

MAX_QUESTION = 1 << 20


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="flodl-probe answer",
        description="Answer another probe: reads one question (JSON) from stdin, prints this box's report on a line "
        "behind a marker, so that it is found behind whatever a login shell prints. Exit 0 once it has answered.",
    )


def main(argv: list[str] | None = None) -> int:
    parser().parse_args(argv)
    began = time.monotonic()
    try:
        asked = msgspec.json.decode(sys.stdin.buffer.read(MAX_QUESTION), type=Question)
    except msgspec.MsgspecError as err:
        fix = "it is asked by the flodl-probe of another box; bring both to the same release"
        raise Broken("bad-question", "cannot read the question", str(err), fix) from None
    facts = gathering.gather(asked)
    sys.stdout.buffer.write(answer.encode(report_on(facts, version(), time.monotonic() - began)))
    return exits.DONE
