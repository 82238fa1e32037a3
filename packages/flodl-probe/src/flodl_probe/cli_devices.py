"""`flodl-probe devices`: the GPUs of this box that are visible from here."""

from __future__ import annotations

import argparse
import json
import sys

from flodl_probe import inventory
from flodl_wire import exits
from flodl_wire.faults import printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-probe devices",
        description="List the GPUs of this box that the visibility masks of the environment let through. "
        "Read-only; creates no GPU context; exit 0 also when there is none.",
    )
    made.add_argument("--json", action="store_true", help='one document: {"devices": [...], "notes": [...]}')
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    found = inventory.take()
    if options.json:
        print(json.dumps(found.as_dict()))
        return exits.DONE
    for device in found.devices:
        print(f"{device.index}  {printable(device.label())}  {device.pci or '-'}  {device.uuid or '-'}")
    if not found.devices:
        print("no GPU is visible; ranks on the processor are named cpu:N, e.g. cpu:2", file=sys.stderr)
    for note in found.notes:
        print(f"note: {printable(note)}", file=sys.stderr)
    return exits.DONE
