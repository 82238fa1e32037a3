"""Run by the Python that has torch, as a script: it may not have this package. Prints one JSON line behind the marker.

torch is loaded by name, because this file is read as text by the probe and imported by nothing of ours.
"""

import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

MARKER = "flodl-deep:"


def main() -> "dict[str, Any]":
    torch = importlib.import_module("torch")
    told: dict[str, Any] = {"version": str(torch.__version__), "devices": [], "archs": [], "nccl": None}
    told["reduce"] = loopback_reduce(torch)
    if torch.cuda.is_available():
        told["archs"] = list(torch.cuda.get_arch_list())
        for index in range(torch.cuda.device_count()):
            told["devices"].append(one_kernel(torch, index))
        try:
            told["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
        except Exception:
            pass
    maps = Path("/proc/self/maps").read_text("utf-8", "replace").splitlines()
    paths = [line.split()[-1] for line in maps if "libnccl" in line or "librccl" in line]
    told["nccl_path"] = paths[0] if paths else None
    return told


def one_kernel(torch: Any, index: int) -> "dict[str, Any]":
    told: dict[str, Any] = {"index": index, "name": torch.cuda.get_device_name(index), "good": False, "text": ""}
    try:
        a = torch.arange(64 * 64, dtype=torch.float32, device=f"cuda:{index}").reshape(64, 64) / 4096
        found = (a @ a).cpu()
        wanted = a.cpu() @ a.cpu()
        told["good"] = bool(torch.allclose(found, wanted, rtol=1e-2))
        if not told["good"]:
            told["text"] = "a matrix product comes out wrong"
    except Exception as err:
        told["text"] = (str(err).strip().splitlines() or [type(err).__name__])[0][:300]
    return told


def loopback_reduce(torch: Any) -> str:
    """Two processes sum a tensor over loopback with gloo; "" when it comes out right. Forks: before CUDA."""
    dist = importlib.import_module("torch.distributed")
    if not dist.is_available():
        return "this torch has no torch.distributed"
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    reader, writer = os.pipe()
    child = os.fork()
    rank = 0 if child else 1
    text = ""
    try:
        timeout = importlib.import_module("datetime").timedelta(seconds=30)
        if rank == 0:  # on a port of the kernel's choice: a free one of ours may be taken by then
            store = dist.TCPStore("127.0.0.1", 0, 2, True, timeout=timeout, wait_for_workers=False)
            os.write(writer, b"%d\n" % store.port)
        else:
            os.close(writer)  # so that the end of the other one is seen
            store = dist.TCPStore("127.0.0.1", int(os.read(reader, 16)), 2, False, timeout=timeout)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timeout)
        value = torch.full((1000,), float(rank + 1))
        dist.all_reduce(value)
        if float(value.sum()) != 3000.0:
            text = "a sum over loopback comes out wrong"
        dist.destroy_process_group()
    except Exception as err:
        text = (str(err).strip().splitlines() or [type(err).__name__])[0][:300]
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    return text


try:
    answer = main()
except BaseException as err:
    answer = {"failure": f"{type(err).__name__}: {(str(err).strip().splitlines() or [''])[0][:300]}"}
sys.stdout.write(f"\n{MARKER}{json.dumps(answer)}\n")
sys.stdout.flush()
os._exit(0)  # a broken driver may crash the interpreter's own end
