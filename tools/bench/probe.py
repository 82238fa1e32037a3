"""What a probe costs before it says anything: whole processes, against `python -c pass`.

The promises are factors: start-up (`flodl-probe --help`) at most 6 bare interpreters, a local audit at most 20. The
ratio here is turned round, promise / factor, so that above 1 is good.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench.rows import report, row

TIMES = 15
CASES: tuple[tuple[str, list[str], float], ...] = (
    ("flodl-probe --help", ["--help"], 6.0),
    ("flodl-probe devices --json", ["devices", "--json"], 6.0),
    ("local audit, --json", ["--json", "--devices", "cpu:1", "--skip-mount"], 20.0),
)


def seconds(command: list[str | Path], folder: str) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "FLODL_"))}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    spent = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr.decode() or done.stdout.decode()}")
    return spent


def main(argv: list[str] | None = None) -> int:
    probe = Path(sys.executable).parent / "flodl-probe"
    bare_command: list[str | Path] = [sys.executable, "-c", "pass"]
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for case, words, promise in CASES:
            seconds([probe, *words], folder)  # byte-compiles what is new
            pairs = [(seconds([probe, *words], folder), seconds(bare_command, folder)) for _ in range(TIMES)]
            ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
            factor = statistics.median(a / b for a, b in pairs)
            more = {"factor": factor, "promise": promise}
            rows.append(row(case, ours * 1e3, bare * 1e3, promise / factor, unit="ms", at_least=1.0, **more))
            print(f"{case}: {factor:.2f} x python -c pass (promised: at most {promise:g})")
    return 0 if report("probe", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
