"""A crowd at the door: a thousand hosts dial one `flodl-window serve` at the same instant and are told their ranks.

There is no peer for it; the promise is a second for a thousand hellos, and that a reader of state.json does not wait
for the crowd. The diallers share the machine with the window, so half of the figure is theirs. The ratio is promise /
figure.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench.rows import report, row

from flodl_wire import frames, preface
from flodl_wire.channel import Initiator
from flodl_wire.join_messages import Accept, DeviceOffer, Hello, JoinDown
from flodl_wire.messages import decode_message, encode_message

CROWD = 1000
PROMISE_S = 1.0
STATE_PROMISE_S = 0.1  # the slowest GET /state.json meanwhile
TOKEN = "00112233445566778899aabbccddeeff"


class Dialler(asyncio.Protocol):
    """Says hello and waits for the answer."""

    def __init__(self, host: str) -> None:
        self.answered: asyncio.Future[Accept] = asyncio.get_running_loop().create_future()
        self._channel = Initiator(preface.JOIN, bytes.fromhex(TOKEN))
        self._channel.send(frames.MESSAGE, encode_message(Hello(host, host, [DeviceOffer("cpu", 0, "cpu")])))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(self._channel.data_to_send())

    def data_received(self, data: bytes) -> None:
        for frame in self._channel.receive_data(data):
            message = decode_message(frame.body, JoinDown, "the window")
            if isinstance(message, Accept) and not self.answered.done():
                self.answered.set_result(message)
        self.transport.write(self._channel.data_to_send())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answered.done():
            self.answered.set_exception(ConnectionError(f"the link closed without an answer ({exc})"))


async def one(port: int, number: int) -> Dialler:
    _, dialler = await asyncio.get_running_loop().create_connection(lambda: Dialler(f"h{number}"), "127.0.0.1", port)
    await dialler.answered
    return dialler


# A reader in a process of its own: the diallers' loop is as busy as the window's.
LOOK = """
import json, socket, sys, time
slowest = 0.0
while True:
    began = time.perf_counter()
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as link:
        link.sendall(b"GET /state.json HTTP/1.1\\r\\nHost: localhost\\r\\n\\r\\n")
        answer = b"".join(iter(lambda: link.recv(1 << 20), b""))
    slowest = max(slowest, time.perf_counter() - began)
    if json.loads(answer.partition(b"\\r\\n\\r\\n")[2])["joined_ranks"] >= int(sys.argv[2]):
        break
    time.sleep(0.02)
print(slowest)
"""


async def crowd(port: int) -> tuple[float, float]:
    """Seconds until the last is in, and the slowest look at the state meanwhile."""
    looking = await asyncio.create_subprocess_exec(
        sys.executable, "-c", LOOK, str(port), str(CROWD), stdout=asyncio.subprocess.PIPE
    )
    began = time.perf_counter()
    diallers = await asyncio.gather(*(one(port, number) for number in range(CROWD)))
    spent = time.perf_counter() - began
    slowest, _ = await looking.communicate()
    for dialler in diallers:
        dialler.transport.abort()
    return spent, float(slowest)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main(argv: list[str] | None = None) -> int:
    port = free_port()
    join = {"discovery": True, "min_rank_start": CROWD + 1, "token": TOKEN}
    config = {"cluster": {"controller": {"host": "127.0.0.1", "port": port, "path": "/", "join": join}}}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "c.json").write_text(json.dumps(config))
        window = subprocess.Popen(
            [Path(sys.executable).parent / "flodl-window", "serve", "--config", "c.json", "--", "true"],
            cwd=folder,
            stderr=subprocess.PIPE,
            env={**os.environ, "FLODL_NET_TIMEOUT_SCALE": "1"},
        )
        assert window.stderr is not None
        window.stderr.readline()  # "window open on …"
        try:
            spent, slowest = asyncio.run(crowd(port))
        finally:
            for number in (signal.SIGINT, signal.SIGINT):
                window.send_signal(number)
            window.stderr.close()
            window.wait(20)
    rows = [
        row(f"{CROWD} hellos at once", spent, PROMISE_S, PROMISE_S / spent, unit="s", at_least=1.0),
        row("slowest state.json meanwhile", slowest, STATE_PROMISE_S, STATE_PROMISE_S / slowest, unit="s"),
    ]
    return 0 if report("join", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
