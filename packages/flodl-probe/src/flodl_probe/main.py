"""The executable `flodl-probe`: says what a box has. Each verb is a file of its own, loaded when it is asked for."""

from __future__ import annotations

import sys

from flodl_wire.faults import guarded, usage


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    return guarded("flodl-probe", lambda: run(words), as_json="--json" in words)


def run(words: list[str]) -> int:
    if words[:1] == ["--version"]:
        from importlib import metadata

        print(f"flodl-probe {metadata.version('flodl-probe')}")
        return 0
    if words[:1] == ["devices"]:
        from flodl_probe.cli_devices import main as verb_main

        return verb_main(words[1:])
    if words and not words[0].startswith("-"):
        raise usage(
            f"cannot do `flodl-probe {words[0]}`", "there is no such command", "flodl-probe, or flodl-probe devices"
        )
    from flodl_probe.cli_inventory import main as inventory_main

    return inventory_main(words)
