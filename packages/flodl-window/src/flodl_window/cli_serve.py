"""``flodl-window serve``: the window without a fan-out; agents dial in by themselves."""

from __future__ import annotations

from flodl_window import cli_launch

PROGRAM = "flodl-window serve"


def main(argv: list[str] | None = None) -> int:
    return cli_launch.main(argv, prog=PROGRAM, fanout=False)
