"""What averages cost over a slow link, once the cadence has found it by itself: the promise is 0.08 of the time.

    python -m tools.bench.slow_link [--cases float32,int8,cpu_async]

Three hosts of a lab, 100 Mbit/s and 20 ms each way to the two that train: rank 2 is two and a half times as fast as
ranks 0 and 1, and a model of four million parameters (link_trainer.py) is averaged with nothing said about the link.
Ours is the share of the time behind the tenth window (metrics.jsonl), the peer is the promise; so the ratio says how
far below it ours is. Needs root, iproute2 and sshd, and five minutes a case, most of which are the windows: at
1.5 s an average, a window has to last 29 s.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from integration.cluster import Cluster, three
from integration.settled import Settled, settled
from tools.bench.rows import report, row
from tools.lab import Lab, Link, missing

PROMISE = 0.08
LINK = Link(rate="100mbit", delay_s=0.02)
SCRIPT = Path(__file__).with_name("link_trainer.py")
BATCH_MS = (75.0, 75.0, 30.0)
CASES = {
    "float32": ("cpu_cadence", "float32"),
    "int8": ("cpu_cadence", "int8"),
    "cpu_async": ("cpu_async", "float32"),
}
SAMPLES = {"float32": 150_000, "int8": 60_000, "cpu_async": 150_000}  # for ten windows and at least three behind them
WITHIN_S = 560.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.slow_link", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default="float32", help=f"which, with commas: {', '.join(CASES)} (default float32)")
    wanted = parser.parse_args(argv).cases.split(",")
    if unknown := [name for name in wanted if name not in CASES]:
        parser.error(f"there is no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    if why := missing():
        print(f"slow_link: not measured: {why}")
        return 1
    rows = [measured(name) for name in wanted]
    return 0 if report("slow_link", rows) else 1


def measured(name: str) -> dict[str, Any]:
    mode, wire = CASES[name]
    paces = " ".join(f"{ms:g}" for ms in BATCH_MS)
    command = f"python {SCRIPT} --samples {SAMPLES[name]} --batch-ms {paces} --wire {wire}"
    with Lab(three(LINK)) as lab:
        hosts = Cluster(lab)
        try:
            hosts.write({"train": {"run": command, "mode": mode}})
            run = hosts.start("@cluster", "train")
            run.done(within=WITHIN_S)
            found, whole = settled(run.run_folder), run.result()
        finally:
            hosts.end()
    print(line(name, found, whole), flush=True)
    case = f"{mode}, {wire}: share of averages behind window 10"
    return row(case, found.share, PROMISE, PROMISE / found.share, at_least=1.0, windows=found.windows, **whole)


def line(name: str, found: Settled, whole: dict[str, Any]) -> str:
    return (
        f"  {name}: {found.share:.3f} of the {found.seconds:.0f} s of {found.windows} windows; the whole run of "
        f"{whole['wall_s']:.0f} s: averages {whole['sync_share']:.3f}, balance {whole['balance']:.3f}"
    )


if __name__ == "__main__":
    raise SystemExit(main())
