"""`make bench`: every benchmark in this folder, or those named (`python -m tools.bench.run startup launch`).

A benchmark is a module here with `def main(argv …) -> int`, 0 when every ratio is as promised. One that fails does not
keep the others from running.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path

FOLDER = Path(__file__).parent
LAST = ("averaging", "cadence")  # minutes each; the others come first, by name


def benchmarks() -> list[str]:
    named = {path.stem for path in FOLDER.glob("*.py") if "\ndef main(argv" in path.read_text()} - {"run"}
    return [*sorted(named - {*LAST}), *(name for name in LAST if name in named)]


def main(argv: list[str] | None = None) -> int:
    known = benchmarks()
    wanted = (sys.argv[1:] if argv is None else argv) or known
    bad = []
    for name in wanted:
        if name not in known:
            print(f"bench: there is no {name!r}; there are: {' '.join(known)}", file=sys.stderr)
            return 2
        began = time.monotonic()
        try:
            kept = importlib.import_module(f"tools.bench.{name}").main([]) == 0
        except Exception:
            traceback.print_exc()
            kept = False
        if not kept:
            bad.append(name)
        print(f"({name}: {time.monotonic() - began:.0f} s)")
    if bad:
        print(f"\nmissed or failed: {' '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    raise SystemExit(main())
