"""An ordinary DistributedDataParallel script: it knows torchrun's environment and nothing of flodl.

    torchrun --nproc-per-node 2 torchrun_plain.py
    fdl --gpus cpu:2 --mode torch plain
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def join(backend, turn):
    """Form the process group, the first time as every script does it.

    Whoever started us (torchrun as flodl) keeps the rendezvous store, and in it the addresses of a group that was left:
    a later group needs names of its own there, or its ranks dial the dead ones.
    """
    if turn == 0:
        dist.init_process_group(backend)
    else:
        store, rank, world = next(dist.rendezvous("env://"))
        dist.init_process_group(backend, store=dist.PrefixStore(f"turn {turn}", store), rank=rank, world_size=world)


def train(steps, rank, device):
    """`steps` steps on this rank's own share of a synthetic regression.

    Returns the last loss and the parameters in one vector.
    """
    torch.manual_seed(0)  # the same first weights and the same truth everywhere …
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
    truth = torch.randn(16, 1, device=device)
    torch.manual_seed(1 + rank)  # … and other samples on each rank
    parallel = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    for _ in range(steps):
        inputs = torch.randn(32, 16, device=device)
        loss = nn.functional.mse_loss(parallel(inputs), inputs @ truth)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--again", action="store_true", help="leave the process group, form another, train once more")
    options = parser.parse_args()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    agree = True
    for turn in range(2 if options.again else 1):
        join("nccl" if cuda else "gloo", turn)
        rank, world = dist.get_rank(), dist.get_world_size()
        loss, mine = train(options.steps, rank, device)
        everyone = [torch.empty_like(mine) for _ in range(world)]
        dist.all_gather(everyone, mine)
        agree = agree and all(torch.equal(mine, theirs) for theirs in everyone)
        print(f"rank {rank} of {world}: loss {loss:.4f}, parameters {'agree' if agree else 'DIFFER'}", flush=True)
        dist.barrier()
        dist.destroy_process_group()
    return 0 if agree else 1


if __name__ == "__main__":
    sys.exit(main())
