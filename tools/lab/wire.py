"""A cable that takes its time: `python -m tools.lab.wire INNER OUTER DELAY`.

Makes two TAP devices and carries every Ethernet frame from one to the other DELAY seconds later, in order. Prints "up"
when both are there. The devices live as long as this process.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

# linux/if_tun.h
TUNSETIFF = 0x400454CA
IFF_TAP = 0x0002
IFF_NO_PI = 0x1000

FRAME = 65_535
# frames in flight each way: 0.1 s of 300 Mbit/s; behind that the newest are dropped, as a router's queue does
IN_FLIGHT = 2_500


def tap(name: str) -> int:
    """A new TAP device; its non-blocking descriptor. One read or write is one frame."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
    return fd


def carry(one: int, other: int, delay: float) -> None:
    """For ever."""
    across = {one: other, other: one}
    queues: dict[int, deque[tuple[float, bytes]]] = {one: deque(), other: deque()}
    while True:
        due = min((queue[0][0] for queue in queues.values() if queue), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic())
        readable, _, _ = select.select([one, other], [], [], wait)
        now = time.monotonic()
        for fd in readable:
            queue = queues[fd]
            for _ in range(64):
                try:
                    frame = os.read(fd, FRAME)
                except BlockingIOError:
                    break
                if len(queue) < IN_FLIGHT:
                    queue.append((now + delay, frame))
        for fd, queue in queues.items():
            while queue and queue[0][0] <= now:
                try:
                    os.write(across[fd], queue.popleft()[1])
                except OSError:  # the far end is down or full: the frame is lost, as on a cable
                    pass


def main(argv: list[str] | None = None) -> int:
    inner, outer, delay = sys.argv[1:] if argv is None else argv
    ends = tap(inner), tap(outer)
    print("up", flush=True)
    carry(*ends, float(delay))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
