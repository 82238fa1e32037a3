"""Plays the launcher and the agents of one small run; ranks are threads that train a handful of numbers."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
import pytest

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_wire import blob, environ
from flodl_wire.hub_messages import Finished, Form, FromHub, HubFailed, Large, Ready, RelayIn, Stop, ToHub
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.plane_messages import Applied, Deposit, EvalDone, Finish, Leaving, Plan, RankHello, TensorSpec, Terms
from flodl_wire.result import RunResult
from flodl_wire.specs import HubSpec, RankPlace, RelaySpec

PROGRAM = str(Path(sys.executable).parent / "flodl-planes")
TENSORS = [
    TensorSpec("weight", [2, 3], "F32", "param", ["head.weight"]),
    TensorSpec("half", [5], "F16", "param"),
    TensorSpec("count", [], "I64", "buffer"),
]
WAIT = 30.0
M = TypeVar("M")


class NumpyRank:
    """One rank. Each batch adds its number of samples to every float, and 1 to `count`."""

    def __init__(self, rank: int, terms: Terms, ms: float, tensors: list[TensorSpec] = TENSORS) -> None:
        self.rank, self.terms, self.ms = rank, terms, ms
        self.layout = lay_out(tensors)
        self.hello = RankHello(rank, terms, tensors, self.layout.sections, "sig", "cpu")
        self.live = Segment.create("live", self.layout.total_bytes)
        self.positions: list[tuple[int, int]] = []  # (epoch, position) in the order they were done
        self.weight = self.live.array[:24].view(np.float32)
        self.weight[:] = 100.0 if rank == 0 else -7.0  # rank 0's model is everyone's first

    def train(self, path: str, on_plan: Callable[[Plan], None]) -> RunResult:
        plane = RankPlane.connect(path, self.hello, self.live)
        try:
            while True:
                message = plane.receive()
                if isinstance(message, Finish):
                    plane.send(Leaving())
                    return message.result
                if isinstance(message, Plan):
                    self._do(plane, message, on_plan)
                    continue
                reduced = plane.reduce(message)  # type: ignore[arg-type]
                if reduced.round.confirm:
                    plane.send(Applied(reduced.round.round, reduced.ms))
                plan = reduced.round.plans.get(str(self.rank))
                if plan is not None:
                    self._do(plane, plan, on_plan)
        finally:
            plane.close()

    def _do(self, plane: RankPlane, plan: Plan, on_plan: Callable[[Plan], None]) -> None:
        on_plan(plan)
        if plan.evaluate is not None:
            plane.send(EvalDone(plan.evaluate, {"weight": float(self.weight[0])}, 1.0))
        steps = 0
        for start, count in plan.spans:
            for at in range(start, start + count, self.terms.batch_size):
                size = min(self.terms.batch_size, start + count - at)
                self.weight += np.float32(size)
                self.positions += [(plan.epoch, position) for position in range(at, at + size)]
                steps += 1
        samples = sum(count for _, count in plan.spans)
        first = self.ms if steps else 0.0
        plane.send(Deposit(plan.window, steps, samples, steps * self.ms, 0.0, first, 1.0, 0.1, float(samples), samples))


class Bench:
    """One hub and the relays of its hosts. `told`: everything the hub said."""

    def __init__(self, folder: Path, mode: str = "cpu_cadence") -> None:
        self.folder, self.mode = folder, mode
        self.run_dir = folder / "run"
        self.run_dir.mkdir()
        self.told: list[FromHub] = []
        self.relays: dict[str, subprocess.Popen[bytes]] = {}
        self.pair, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [PROGRAM, "hub", "--pair", str(theirs.fileno())]
        self.hub = subprocess.Popen(
            command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[theirs.fileno()], text=False
        )
        theirs.close()

    def start(self, **spec: Any) -> Bench:
        plain = {"run": "r1", "run_dir": str(self.run_dir), "socket_dir": str(self.folder), "mode": self.mode}
        document = HubSpec(**{**plain, "salt_hex": "ab" * 16, **spec})
        self.type_in(msgspec.json.encode(document) + b"\n")
        return self

    def type_in(self, line: bytes) -> None:
        assert self.hub.stdin is not None
        self.hub.stdin.write(line)
        self.hub.stdin.close()

    def form(self, hosts: dict[str, list[int]]) -> None:
        ready = self.await_word(Ready)
        places = [RankPlace(rank, host, at, "cpu") for host, ranks in hosts.items() for at, rank in enumerate(ranks)]
        self.say(Form(places))
        for host, ranks in hosts.items():
            relay = RelaySpec(
                host,
                "127.0.0.1",
                1,
                ranks,
                len(places),
                "ab" * 16,
                "r1",
                self.mode,
                hub_socket=ready.socket,
                relay_socket=str(self.folder / f"{host}.sock"),
            )
            environment = {**os.environ, environ.RELAY_JSON: blob.encode(relay)}
            self.relays[host] = subprocess.Popen([PROGRAM, "relay"], env=environment, stderr=subprocess.DEVNULL)
        for _ in hosts:
            self.await_word(RelayIn)  # a loaded box takes longer to start one than a rank's scaled patience lasts

    def train(
        self, host: str, rank: NumpyRank, on_plan: Callable[[Plan], None] = lambda plan: None
    ) -> Future[RunResult]:
        done: Future[RunResult] = Future()

        def work() -> None:
            try:
                done.set_result(rank.train(str(self.folder / f"{host}.sock"), on_plan))
            except BaseException as err:
                done.set_exception(err)

        threading.Thread(target=work, daemon=True).start()
        return done

    def say(self, message: ToHub) -> None:
        self.pair.send(encode_message(message))

    def await_word(self, kind: type[M]) -> M:
        """The hub's next word of this kind; what comes before it is kept in `told`."""
        while True:
            assert select.select([self.pair], [], [], WAIT)[0], f"the hub says no {kind.__name__}: {self.told}"
            body, descriptors, _, _ = socket.recv_fds(self.pair, 1 << 18, 1)
            assert body, f"the hub is gone: {self.told}"
            message = decode_message(body, FromHub, "the hub")
            if isinstance(message, Large):
                message = decode_message(os.pread(descriptors[0], message.size, 0), FromHub, "the hub")
                os.close(descriptors[0])
            self.told.append(message)
            if isinstance(message, kind):
                return message
            assert not isinstance(message, HubFailed | Finished), message

    def end(self) -> int:
        """Let go of the hub; its exit code."""
        self.say(Stop("done"))
        return self.hub.wait(WAIT)

    def close(self) -> None:
        self.pair.close()
        for process in (*self.relays.values(), self.hub):
            process.kill()
            process.wait(WAIT)
        for stream in (self.hub.stdin, self.hub.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """A hub that waits for its spec, in cpu_cadence."""
    made = Bench(tmp_path)
    yield made
    made.close()


@pytest.fixture
def numpy_rank() -> type[NumpyRank]:
    return NumpyRank
