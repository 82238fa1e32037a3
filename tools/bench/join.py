"""A crowd at the door: ten hosts, then a thousand, dial one `flodl-window serve` at once and are told their world.

Promised: the world is told within 0.1 s of the last hello's answer at ten hosts, within 1 s at a thousand, and a
reader of state.json does not wait for the crowd (p99 below 50 ms). Beside it, where torch is here, as many TCPStore
clients on threads that connect and wait for each other; they prove nothing and seal nothing. The diallers share the
machine with the window, so half of our figure is theirs.
"""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tools.bench.rows import report, row

from flodl_wire import frames, preface
from flodl_wire.channel import Initiator
from flodl_wire.join_messages import Accept, DeviceOffer, Hello, JoinDown, WorldFormed
from flodl_wire.messages import decode_message, encode_message

CROWDS = {10: 0.1, 1000: 1.0}  # hosts: seconds from the last Accept to the last WorldFormed
STATE_PROMISE_S = 0.05  # p99 of GET /state.json meanwhile
TIMES = 3
TOKEN = "00112233445566778899aabbccddeeff"
PEER = Path(__file__).parent / "peers" / "store_crowd.py"


class Dialler(asyncio.Protocol):
    """Says hello, waits for the answer and then for the world."""

    def __init__(self, host: str) -> None:
        loop = asyncio.get_running_loop()
        self.formed: asyncio.Future[None] = loop.create_future()
        self.accepted_at = self.formed_at = 0.0
        self._channel = Initiator(preface.JOIN, bytes.fromhex(TOKEN))
        self._channel.send(frames.MESSAGE, encode_message(Hello(host, host, [DeviceOffer("cpu", 0, "cpu")])))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._channel.data_to_send())

    def data_received(self, data: bytes) -> None:
        for frame in self._channel.receive_data(data):
            message = decode_message(frame.body, JoinDown, "the window")
            if isinstance(message, Accept):
                self.accepted_at = time.perf_counter()
            elif isinstance(message, WorldFormed) and not self.formed.done():
                self.formed_at = time.perf_counter()
                self.formed.set_result(None)
        self.transport.write(self._channel.data_to_send())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.formed.done():
            self.formed.set_exception(ConnectionError(f"the link closed before the world formed ({exc})"))


# A reader in a process of its own: the diallers' loop is as busy as the window's.
LOOK = """
import json, socket, sys, time
looks = []
while True:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
        link.sendall(b"GET /state.json HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: link.recv(1 << 20), b""))
    looks.append(time.perf_counter() - began)
    if json.loads(answer.partition(b"\\r\\n\\r\\n")[2])["phase"] != "waiting":
        break
    time.sleep(0.01)
looks.sort()
print(looks[min(len(looks) - 1, int(0.99 * len(looks)))])
"""


@dataclass
class Crowd:
    """Seconds: from the first dial to the last WorldFormed, from the last Accept to it, and the p99 of a look."""

    whole: float
    forming: float
    look: float


async def crowd(port: int, count: int) -> Crowd:
    looking = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOOK, str(port), stdout=asyncio.subprocess.PIPE
    )
    loop = asyncio.get_running_loop()
    began = time.perf_counter()

    async def one(number: int) -> Dialler:
        _, dialler = await loop.create_connection(lambda: Dialler(f"h{number}"), "127.0.0.1", port)
        await dialler.formed
        return dialler

    diallers = await asyncio.gather(*(one(number) for number in range(count)))
    told = max(dialler.formed_at for dialler in diallers)
    forming = told - max(dialler.accepted_at for dialler in diallers)
    look, _ = await looking.communicate()
    for dialler in diallers:
        dialler.transport.abort()
    return Crowd(told - began, forming, float(look))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ours(count: int) -> Crowd:
    """One window from its opening to a formed world of `count` hosts."""
    port = free_port()
    join = {"discovery": True, "min_rank_start": count, "target_ranks": count, "token": TOKEN}
    config = {"cluster": {"controller": {"host": "127.0.0.1", "port": port, "path": "/", "join": join}}}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "c.json").write_text(json.dumps(config))
        window = subprocess.Popen(
            [Path(sys.executable).parent / "flodl-window", "serve", "--config", "c.json", "--", "true"],
            cwd=folder,
            stderr=(Path(folder) / "err").open("wb"),
            env={**os.environ, "FLODL_NET_TIMEOUT_SCALE": "1"},
        )
        try:
            ready(port)
            return asyncio.run(crowd(port, count))
        finally:
            for number in (signal.SIGINT, signal.SIGINT):
                window.send_signal(number)
            window.wait(20)


def ready(port: int) -> None:
    """The window listens and its coordinator has had the time to start; neither is what is measured."""
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            break
        except OSError:
            assert time.monotonic() < until, "the window did not open"
            time.sleep(0.02)
    time.sleep(1.0)


class Store:
    """The peer's process; None of it when torch is not here."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        if importlib.util.find_spec("torch") is not None:
            self._process = subprocess.Popen(
                [sys.executable, PEER],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "TORCH_CPP_LOG_LEVEL": "ERROR"},  # it warns of each client's name
            )
            self._pipe(self._process.stdout).readline()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def crowd(self, count: int) -> float | None:
        if self._process is None:
            return None
        self._pipe(self._process.stdin).write(f"{count}\n")
        self._pipe(self._process.stdin).flush()
        return float(self._pipe(self._process.stdout).readline())

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate(timeout=20)


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def main(argv: list[str] | None = None) -> int:
    store = Store()
    rows = []
    for count, promise in CROWDS.items():
        pairs = [(ours(count), store.crowd(count)) for _ in range(TIMES)]
        whole = middle([crowd.whole for crowd, _ in pairs])
        forming = middle([crowd.forming for crowd, _ in pairs])
        look = middle([crowd.look for crowd, _ in pairs])
        rows.append(
            row(f"{count} hosts: last hello to world", forming, promise, promise / forming, unit="s", at_least=1.0)
        )
        rows.append(
            row(f"{count} hosts: state.json p99", look, STATE_PROMISE_S, STATE_PROMISE_S / look, unit="s", at_least=1.0)
        )
        peers = [seconds for _, seconds in pairs if seconds is not None]
        if peers:
            rows.append(row(f"{count}: all at once, TCPStore", whole, middle(peers), middle(peers) / whole, unit="s"))
    store.close()
    return 0 if report("join", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
