"""From the command to the first batch of 2 and 4 CPU ranks, against torchrun to a first barrier of as many.

Both end up with ranks that have torch and have met: ours at the first batch of a Trainer (the world has formed, the
weights have been broadcast), torchrun's at the end of `dist.barrier()` on gloo. By then ours has an optimizer, and with
it torch._dynamo, which costs as much to import as torch; so a second pair of rows, without a promise, has torchrun's
ranks get as far as ours: to the first batch of a DistributedDataParallel loop. Ours are forked from one process that
has imported both (docs/decisions.md), torchrun's import for themselves.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tools.bench.rows import interleaved, report, row

from flodl_wire import environ

TIMES = 5
PROMISE = 0.9
MARK = "REACHED"
BIN = Path(sys.executable).parent

OURS = """
import flodl_planes
flodl_planes.dispatch()
import torch
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, i):
        if not self.__dict__.setdefault("told", False):
            self.told = True
            print("REACHED", flush=True)
        return torch.zeros(4)
flodl_planes.Trainer(
    model=lambda: torch.nn.Linear(4, 1), optimizer=lambda p: torch.optim.SGD(p, lr=0.1),
    loss=lambda model, batch: model(batch).square().mean(), data=Data(), batch_size=4, epochs=1,
).run()
"""

PEER = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.barrier()
print("REACHED", flush=True)
dist.destroy_process_group()
"""

PEER_TRAINS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
print("REACHED", flush=True)
dist.barrier()
dist.destroy_process_group()
"""


def reached(command: list[str | Path], folder: Path, ranks: int) -> float:
    """Seconds from the command until every rank has said so; the command is then asked to end, and waited for."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "FLODL_"))}
    environment |= {"PATH": f"{BIN}:{environment['PATH']}", "OMP_NUM_THREADS": "1"}
    environment[environ.NET_TIMEOUT_SCALE] = "0.1"  # so that the end of ours, which nobody measures, takes no 5 s
    began = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    timer = threading.Timer(120, process.terminate)
    timer.start()
    said: list[str] = []
    spent = 0.0
    for line in process.stdout:
        said.append(line)
        if "".join(said).count(MARK) == ranks and not spent:
            spent = time.perf_counter() - began
            process.terminate()
    timer.cancel()
    process.wait()
    if not spent:
        raise RuntimeError(f"{command}: exit {process.returncode}\n{''.join(said[-30:])}")
    return spent


def processor() -> float:
    """Seconds of processor that our ended descendants have had; each of them was waited for by its parent."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def compare(folder: Path, script: str, ranks: int, promise: float | None) -> list[dict[str, Any]]:
    """Two rows: the time by the clock, and the processor that each side has taken for it, to its end. The second is a
    figure on a busy box too.
    """
    ours: list[str | Path] = [BIN / "fdl", "--gpus", f"cpu:{ranks}", "go"]
    peer: list[str | Path] = [BIN / "torchrun", "--standalone", f"--nproc-per-node={ranks}", f"{script}.py"]
    spent: list[list[float]] = [[], []]

    def side(number: int, command: list[str | Path]) -> float:
        before = processor()
        seconds = reached(command, folder, ranks)
        spent[number].append(processor() - before)
        return seconds

    reached(ours, folder, ranks)  # warms the file cache for both
    figures = interleaved(lambda: side(0, ours), lambda: side(1, peer), TIMES)
    promised = {} if promise is None else {"at_least": promise}
    case, mine, theirs = f"{ranks} CPU ranks, torchrun to a first {script}", *map(statistics.median, spent)
    return [
        row(case, *figures, unit="s", **promised),
        row(f"{case}: processor", mine, theirs, theirs / mine, unit="s"),
    ]


def main(argv: list[str] | None = None) -> int:
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ours.py").write_text(OURS)
        (folder / "barrier.py").write_text(PEER)
        (folder / "batch.py").write_text(PEER_TRAINS)
        manifest = {"commands": {"go": {"run": "python ours.py", "cluster": True, "mode": "cpu_sync"}}}
        (folder / "fdl.yml").write_text(json.dumps(manifest))
        for script, promise in (("barrier", PROMISE), ("batch", None)):
            for ranks in (2, 4):
                rows += compare(folder, script, ranks, promise)
    return 0 if report("launch", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
