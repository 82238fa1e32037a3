"""A crowd at torch's TCPStore: so many clients on threads of one process connect, add themselves and wait for the rest.

One number on stdin a line: how many; one line of seconds comes back, from the first connection to the last client that
knows that all are there.
"""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta


def crowd(count: int) -> float:
    """Seconds for `count` clients."""
    from torch.distributed import TCPStore

    wait = timedelta(seconds=120)
    server = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=wait)
    told = threading.Barrier(count + 1)
    failures: list[BaseException] = []

    def client() -> None:
        try:
            store = TCPStore("127.0.0.1", server.port, is_master=False, wait_for_workers=False, timeout=wait)
            if store.add("in", 1) == count:
                store.set("formed", "1")
            store.wait(["formed"])
        except BaseException as err:
            failures.append(err)
        told.wait(120)

    threading.stack_size(256 * 1024)
    threads = [threading.Thread(target=client) for _ in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    told.wait(120)
    spent = time.perf_counter() - began
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return spent


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        print(crowd(int(line)), flush=True)
