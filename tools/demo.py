"""`make demo`: the digits example on two ranks of this box, one made 2.5 times slower; then what happened, in words.

Exit code 0 only when the run is done by its own verdict.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "docs" / "examples" / "digits"
COMMAND = ["--gpus", "cpu:2", "--mode", "cpu_cadence", "digits", "--slow", "1:2.5"]


def fdl() -> Path:
    return Path(sys.executable).parent / "fdl"


def last_accuracy(result: dict[str, Any]) -> float | None:
    """Of the newest epoch that was evaluated."""
    for epoch in reversed(result["epochs"]):
        if epoch.get("eval"):
            return float(epoch["eval"].get("accuracy", 0.0))
    return None


def summary(result: dict[str, Any], folder: Path) -> str:
    """The lines for people: what happened, where the files are, what to try next."""
    accuracy, balance = last_accuracy(result), result["balance"]
    lines = ["", f"What happened: {result['why'] or result['verdict']}"]
    lines.append(
        f"  {result['world_size']} ranks trained {len(result['epochs'])} epochs in {result['wall_s']:.0f} s, "
        f"{result['samples']} samples, each merged once, {result['rounds']} averages"
    )
    if accuracy is not None:
        lines.append(f"  held-out accuracy {accuracy:.3f}")
    if balance is not None:
        lines.append(f"  balance {balance:.2f}  (1.00: nobody ever waited for anybody)")
    lines += [
        f"  rank {rank['rank']}: {rank['batches']} batches at {rank['samples_per_s']:.0f} samples/s, "
        f"busy {rank['busy_s']:.1f} s, waiting {rank['wait_s']:.1f} s"
        for rank in result["ranks"]
    ]
    lines += [
        f"Where it is: {os.path.relpath(folder)}/",
        "  result.json · metrics.jsonl · checkpoint.safetensors · state.json · log/",
        "Try next:",
        "  .venv/bin/fdl init my-run && cd my-run && ../.venv/bin/fdl --gpus cpu:2 train     a project of your own",
        "  docs/two-boxes.md                                                               the same across machines",
    ]
    return "\n".join(lines)


def main() -> int:
    print(f"in {os.path.relpath(EXAMPLE)}: fdl {' '.join(COMMAND)}", flush=True)
    # Ctrl-C reaches fdl too, which ends the run and says so; we stay for its exit code.
    signal.signal(signal.SIGINT, lambda *_: None)
    code = subprocess.run([fdl(), *COMMAND], cwd=EXAMPLE, check=False).returncode
    if code:
        return code if code > 0 else 128 - code
    folder = EXAMPLE / "runs" / "latest"
    result = json.loads((folder / "result.json").read_text())
    print(summary(result, folder.resolve()))
    return 0 if result["verdict"] == "done" else 1


if __name__ == "__main__":
    raise SystemExit(main())
