"""One rank of the peer: torch.distributed's gloo all_reduce on one flat float32 tensor, once for every line on stdin.

argv: rank, world, bytes, address of rank 0, port. Prints ``ready``, then for each line "start end" of its call, in
seconds of the monotonic clock that all processes of the box share.
"""

import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist


def main() -> None:
    rank, world, nbytes, address, port = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        sys.argv[4],
        int(sys.argv[5]),
    )
    torch.set_num_threads(1)
    store = dist.TCPStore(address, port, world, rank == 0, timeout=timedelta(seconds=120))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    tensor = torch.full((nbytes // 4,), float(rank))
    dist.all_reduce(tensor)  # connections, warm memory
    print("ready", flush=True)
    for _ in sys.stdin:
        tensor.fill_(float(rank))
        start = time.monotonic()
        dist.all_reduce(tensor)
        end = time.monotonic()
        expected = float(sum(range(world)))
        if tensor[0] != expected or tensor[-1] != expected:
            raise SystemExit(f"gloo rank {rank}: {tensor[0]} is not {expected}")
        print(start, end, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
