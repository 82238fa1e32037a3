"""The plane's processes for the benchmark and nothing else of a run: a hub without coordinator, relays, and ranks
without torch.

``python plane_roles.py hub|relay|rank JSON``. A rank does a round for every line on its stdin and answers "start end"
like the peer.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from flodl_planes.coordinator.transport_events import FromRank
from flodl_planes.hub.transport import HubTransport
from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.relay.process import Relay
from flodl_wire.plane_messages import Deposit, Leaving, RankHello, Round, TensorSpec, Terms
from flodl_wire.specs import RelaySpec

SALT = bytes(16)


def hub(socket_path: str, hosts: list[str], ranks: int, address: str, wire: str, outer: bool) -> None:
    """Starts a round whenever every rank has deposited. Prints its port; for each line on stdin what it has used."""
    events: queue.SimpleQueue[Any] = queue.SimpleQueue()
    transport = HubTransport(socket_path, SALT, True, events)
    door = socket.create_server((address, 0))

    def accept() -> None:
        while True:
            sock, _ = door.accept()
            transport.adopt(sock, b"", sock.fileno())

    threading.Thread(target=accept, daemon=True).start()
    print(door.getsockname()[1], flush=True)

    def report() -> None:
        for _ in sys.stdin:
            status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
            peak, now = (int(status[name].split()[0]) * 1024 / 1e6 for name in ("VmHWM", "VmRSS"))
            print(json.dumps({"peak_mb": peak, "now_mb": now, "cpu_s": sum(os.times()[:2])}), flush=True)
        os._exit(0)

    threading.Thread(target=report, daemon=True).start()
    number, deposits = 0, set()
    weights = {str(rank): 1 / ranks for rank in range(ranks)}
    while True:
        event = events.get()
        if isinstance(event, FromRank) and isinstance(event.message, Deposit):
            deposits.add(event.rank)
            if len(deposits) == ranks:
                deposits.clear()
                spoken = wire if number else "float32"
                alone = len(hosts) == 1 and not outer
                transport.start_round(Round(number, weights, 0, alone, wire=spoken, outer=outer and number > 0), hosts)
                number += 1


def rank(number: int, ranks: int, nbytes: int, socket_path: str, wire: str, outer: bool) -> None:
    tensors = [TensorSpec("w", [nbytes // 4], "F32", "param")]
    layout = lay_out(tensors)
    live = Segment.create("live", layout.total_bytes)
    values = live.array.view(np.float32)
    values[:] = number
    step = {"kind": "nesterov", "lr": 0.7, "momentum": 0.9} if outer else {}
    terms = Terms("cpu_sync", 1, 1, 1, 0, False, wire=wire, outer=step)
    plane = RankPlane.connect(socket_path, RankHello(number, terms, tensors, layout.sections, "bench"), live)
    expected = np.float32((ranks - 1) / 2)
    print("ready", flush=True)
    for window, _ in enumerate(sys.stdin):
        values[:] = number
        start = time.monotonic()
        plane.send(Deposit(window, 1, 1))
        message = plane.receive()
        assert isinstance(message, Round)
        plane.reduce(message)
        end = time.monotonic()
        if not outer and not np.allclose(values[:: max(1, len(values) // 1000)], expected):
            raise SystemExit(f"rank {number}: {values[0]} … {values[-1]} is not {expected}")
        print(start, end, flush=True)
    plane.send(Leaving())
    plane.close()


def main() -> None:
    role, options = sys.argv[1], json.loads(sys.argv[2])
    if role == "hub":
        hub(**options)
    elif role == "rank":
        rank(**options)
    else:
        Relay(
            RelaySpec(controller_host=options.pop("address"), world_size=0, salt_hex=SALT.hex(), run="bench", **options)
        ).run()


if __name__ == "__main__":
    main()
