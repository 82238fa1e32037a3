"""`flodl-probe schema`: what `--json` prints, as a JSON Schema."""

from __future__ import annotations

import argparse
import json

import msgspec

from flodl_probe.report import Report
from flodl_wire import exits


def parser() -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog="flodl-probe schema", description="Print the JSON Schema of what flodl-probe --json prints."
    )


def main(argv: list[str] | None = None) -> int:
    parser().parse_args(argv)
    print(json.dumps(schema(), indent=2))
    return exits.DONE


def schema() -> dict[str, object]:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Report)}
