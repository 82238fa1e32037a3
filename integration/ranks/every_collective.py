"""torch.distributed as scripts use it: groups, barriers, object collectives, a device mesh, leaving and forming again.

every_collective.py [--exit RANK:CODE]     that rank leaves with CODE while the others wait for it
"""

import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

FAR = 2**20  # elements: no eager path


def collectives(rank: int, world: int) -> None:
    total = torch.full((FAR,), float(rank))
    dist.all_reduce(total)
    assert total[0] == total[-1] == world * (world - 1) / 2
    everyone: list[Any] = [None] * world
    dist.all_gather_object(everyone, {"rank": rank, "host": os.uname().nodename})
    assert [said["rank"] for said in everyone] == list(range(world))
    told = [{"from": 0}] if rank == 0 else [None]
    dist.broadcast_object_list(told, src=0)
    assert told == [{"from": 0}]
    handed: list[Any] = [None]
    dist.scatter_object_list(handed, [f"for {r}" for r in range(world)] if rank == 0 else None, src=0)
    assert handed == [f"for {rank}"]
    first = dist.new_group([0, world - 1])
    if rank in (0, world - 1):
        pair = torch.ones(3)
        dist.all_reduce(pair, group=first)
        assert pair.tolist() == [2.0] * 3
    mesh = init_device_mesh("cpu", (world,))
    one = torch.ones(1)
    dist.all_reduce(one, group=mesh.get_group())
    assert one.item() == world
    dist.monitored_barrier()
    dist.barrier()


def main(words: list[str]) -> int:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if words:
        leaver, _, code = words[1].partition(":")
        dist.barrier()
        if rank == int(leaver):
            os._exit(int(code))
        dist.all_reduce(torch.ones(FAR))
    collectives(rank, world)
    dist.destroy_process_group()
    store, rank, world = next(dist.rendezvous("env://"))  # type: ignore[attr-defined]  # public in torch's docs
    again = dist.PrefixStore("again", store)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=again, rank=rank, world_size=world)
    collectives(rank, world)
    print(f"rank {rank} of {world} did all of it twice", flush=True)
    dist.barrier()
    dist.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
