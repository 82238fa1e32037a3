"""A run that is watched, for `page`: a real door and board, fed as 64 ranks on 16 hosts that have trained for long.

Prints its port, then one line of JSON a second: how late a timer of the loop came (the door's own answers are as late),
resident memory, processor seconds, open pages. Ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import sys
import time
from collections.abc import Mapping
from typing import Any

import psutil

from flodl_window.door import Door, DoorLimits
from flodl_window.live.answers import Answer
from flodl_window.live.board import TICK_S, Board
from flodl_window.live.feed import Watcher
from flodl_wire.hub_messages import EpochDone, Progress, RankProgress, Spent, Timeline, TrainingBegan
from flodl_wire.join_messages import GpuLoad, HostLoad
from flodl_wire.state import Member, RankState, State

RANKS, HOSTS, POINTS = 64, 16, 10_000
CARD = "NVIDIA H200 (139GB, sm90)"
EVERY_S = 0.5  # between two figures of the hub


class World:
    """What the door serves."""

    def __init__(self) -> None:
        self.state = State(
            "bench", "training", "64 ranks", "cpu_cadence", RANKS, HOSTS, RANKS, RANKS, None, None, "auto", False
        )
        each = RANKS // HOSTS
        self.state.members = [
            Member(f"host-{at}", [*range(at * each, at * each + each)], ["cuda:0"] * each, [CARD] * each, "cu128", 1.0)
            for at in range(HOSTS)
        ]  # fmt: skip
        self.state.ranks = [RankState(rank, f"host-{rank // each}", "cuda:0", "training") for rank in range(RANKS)]
        self.now = 0.0
        self.board = Board("bench", "cpu_cadence", "0123456789abcdef", lambda: self.state, lambda: self.now)
        self.board.hear(TrainingBegan("go"))

    def step(self, at: int) -> None:
        """Half a second of the run."""
        self.now += EVERY_S
        rates = [RankProgress(rank, 900 + 40 * (rank % 8) + 30 * math.sin(at / 9 + rank), at) for rank in range(RANKS)]
        self.state.progress = Progress(
            at // 100, 100, at % 100, 100, 6e4, 2 / (1 + at / 500), 0.9, 0.03, rounds=at, ranks=rates
        )
        self.board.hear(self.state.progress)
        self.board.hear(
            Timeline(self.now, [Spent(rank, 0.4, 0.06 + rank / 2000, 0.03, 5, 160) for rank in range(RANKS)])
        )
        if at % 4 == 0:
            cards = [GpuLoad(card, 0.9, 60 << 30, 139 << 30) for card in range(4)]
            for host in range(HOSTS):
                load = HostLoad(time.time(), 0.3, 40 << 30, 128 << 30, 1e8, 1e8, cards)
                self.board.history.note_load(self.now, f"host-{host}", load, dict.fromkeys(range(4), CARD))
        if at % 100 == 0:
            self.board.hear(
                EpochDone(at // 100, "", 2 / (1 + at / 500), 50.0, 32_000, eval={"accuracy": 1 - 1 / (2 + at / 500)})
            )
        self.board.history.note_lines(f"host-{at % HOSTS}:{at % RANKS}", [f"step {at}: loss {2 / (1 + at / 500):.4f}"])

    # the door's pages

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        return self.board.answer(path, headers)

    def watch(self, watcher: Watcher, headers: Mapping[str, str]) -> None:
        self.board.watch(watcher, headers)

    def unwatch(self, watcher: Watcher) -> None:
        self.board.unwatch(watcher)

    def start(self, *, loopback: bool, authorization: str) -> tuple[int, dict[str, object]]:
        return 409, {"error": "no switch"}

    def is_own_name(self, host: str) -> bool:
        return host in ("127.0.0.1", "localhost")


async def serve() -> None:
    world = World()
    for at in range(POINTS):
        world.step(at)
        if at % 100 == 0:
            world.board.tick()
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    nobody: Any = None
    limits = DoorLimits(10.0, 5.0)
    door = Door(
        [sock],
        owner=nobody,
        pages=world,
        hub=nobody,
        salt_for=lambda keyed: None,
        limits=limits,
        complain=lambda text: None,
    )
    await door.open()
    print(sock.getsockname()[1], flush=True)
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    loop.add_reader(0, lambda: None if gone.done() else gone.set_result(None))
    process = psutil.Process()
    late: list[float] = []
    at = POINTS
    while not gone.done():
        end = loop.time() + TICK_S
        while (now := loop.time()) < end:
            await asyncio.sleep(0.005)
            late.append(loop.time() - now - 0.005)
        world.step(at)
        world.board.tick()
        at += 1
        if at % 2 == 0:
            late.sort()
            used = process.cpu_times()
            told = {
                "late_ms": 1e3 * late[int(len(late) * 0.99)],
                "rss": process.memory_info().rss,
                "cpu_s": used.user + used.system,
                "pages": len(world.board.feed),
                "dropped": world.board.feed.dropped,
            }
            print(json.dumps(told), flush=True)
            late.clear()


if __name__ == "__main__":
    asyncio.run(serve())
    sys.exit(0)
