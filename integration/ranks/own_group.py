"""A rank that drives torch.distributed itself, behind the run's rendezvous. `differ`: one's data have another name."""

import sys
import time

import torch
import torch.distributed as dist

import flodl_planes

last = flodl_planes.local_cluster().rank == flodl_planes.local_cluster().world_size - 1
sig = ("cd" if last and "differ" in sys.argv else "ab") * 32
rank, world_size, store = flodl_planes.rendezvous(sig)
dist.init_process_group("gloo", rank=rank, world_size=world_size, store=store)
numbers = torch.tensor([rank + 1.0])
dist.all_reduce(numbers)
print(f"rank {rank} of {world_size}: {numbers.item():g} in all", flush=True)
dist.destroy_process_group()
if last:
    time.sleep(3)  # plays work of its own, while the other host is done and goes
