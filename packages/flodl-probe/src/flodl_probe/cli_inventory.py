"""Plain `flodl-probe`: what this box has, at a glance."""

from __future__ import annotations

import argparse
import json
import os
import platform

from flodl_probe import inventory, software
from flodl_wire import environ, exits
from flodl_wire.faults import printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-probe",
        description="Say what this box has: its GPUs, its Python, its torch. Read-only.",
        epilog="`flodl-probe devices [--json]` lists the GPUs alone, for scripts.",
    )
    made.add_argument("--json", action="store_true", help="one document with the same content")
    made.add_argument("--version", action="store_true", help="the version of flodl-probe")
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    found = inventory.take()
    host = os.environ.get(environ.HOST_NAME) or platform.node()
    python, torch = software.python(), software.torch()
    if options.json:
        document = {"host": host, "cores": os.cpu_count(), "python": python, "torch": torch, **found.as_dict()}
        print(json.dumps(document))
        return exits.DONE
    print(f"host    {printable(host)}, {os.cpu_count()} cores")
    print(f"python  {python['version']} ({printable(python['executable'])})")
    print(f"torch   {torch or 'not installed for this Python'}")
    for device in found.devices:
        print(f"gpu {device.index}   {printable(device.label())}")
    if not found.devices:
        print("gpu     none visible (ranks on the processor: cpu:2)")
    for note in found.notes:
        print(f"note    {printable(note)}")
    return exits.DONE
