"""From the command to the first batch of 2 and 4 CPU ranks, against torchrun to a first barrier of as many.

Both sides import torch in every rank and end up with ranks that have met: ours at the first batch of a Trainer (the
world has formed, the weights have been broadcast), torchrun's at the end of `dist.barrier()` on gloo. By then ours has
an optimizer, and with it torch._dynamo, which costs as much to import as torch; so a second pair of rows, without a
promise, has torchrun's ranks get as far as ours: to the first batch of a DistributedDataParallel loop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tools.bench.rows import interleaved, report, row

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
    """Seconds from the command until every rank has said so; the command is then asked to end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "FLODL_"))}
    environment |= {"PATH": f"{BIN}:{environment['PATH']}", "OMP_NUM_THREADS": "1"}
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


def compare(folder: Path, script: str, ranks: int, promise: float | None) -> dict[str, Any]:
    ours: list[str | Path] = [BIN / "fdl", "--gpus", f"cpu:{ranks}", "go"]
    peer: list[str | Path] = [BIN / "torchrun", "--standalone", f"--nproc-per-node={ranks}", f"{script}.py"]
    reached(ours, folder, ranks)  # warms the file cache for both
    figures = interleaved(lambda: reached(ours, folder, ranks), lambda: reached(peer, folder, ranks), TIMES)
    promised = {} if promise is None else {"at_least": promise}
    return row(f"{ranks} CPU ranks, torchrun to a first {script}", *figures, unit="s", **promised)


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
            rows += [compare(folder, script, ranks, promise) for ranks in (2, 4)]
    return 0 if report("launch", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
