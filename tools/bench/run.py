"""`make bench`: every benchmark in this folder, or those named (`python -m tools.bench.run startup launch`).

A benchmark is a module here with `main(argv) -> int`, 0 when every ratio is as promised. One that fails does not keep
the others from running.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback
from pathlib import Path

# cheap ones first; a name without its file is left out
ORDER = ("startup", "launch", "averaging", "cadence")


def main(argv: list[str] | None = None) -> int:
    wanted = (sys.argv[1:] if argv is None else argv) or [
        n for n in ORDER if (Path(__file__).parent / f"{n}.py").exists()
    ]
    bad = []
    for name in wanted:
        if name not in ORDER:
            print(f"bench: there is no {name!r}; there are: {' '.join(ORDER)}", file=sys.stderr)
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
