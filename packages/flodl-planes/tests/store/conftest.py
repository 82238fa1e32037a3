"""A store whose process finds an echo server where torch would be, and diallers of its channels."""

from __future__ import annotations

import contextlib
import queue
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flodl_planes.hub.store import Store
from flodl_wire import preface
from flodl_wire.channel import Initiator
from flodl_wire.frames import STORE

SALT = bytes(range(16))
WAIT = 20.0

ECHO = '''
import socket, threading

class TCPStore:
    """Sends back what comes; a connection that says "die" ends the process."""

    def __init__(self, host, port, *, is_master, timeout, wait_for_workers, master_listen_fd):
        assert is_master and not wait_for_workers
        threading.Thread(target=serve, args=(socket.socket(fileno=master_listen_fd),), daemon=True).start()

def serve(listener):
    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()

def echo(sock):
    with sock:
        while data := sock.recv(1 << 16):
            if data == b"die":
                import os
                os._exit(7)
            sock.sendall(data)
'''


class Dialler:
    """An agent's end of one store channel, blocking. `sock` is already in the store's hands."""

    def __init__(self, sock: socket.socket, channel: Initiator) -> None:
        self.sock, self.channel = sock, channel
        self.bodies: list[bytes] = []

    def shake_hands(self) -> None:
        while not self.channel.established:
            self._receive()

    def send(self, data: bytes) -> None:
        self.channel.send(STORE, data)
        self.sock.sendall(self.channel.data_to_send())

    def receive(self) -> bytes:
        while not self.bodies:
            self._receive()
        return self.bodies.pop(0)

    def _receive(self) -> None:
        data = self.sock.recv(1 << 16)
        if not data:
            self.channel.receive_eof()
            raise ConnectionResetError("the store closed the channel")
        self.bodies += [bytes(frame.body) for frame in self.channel.receive_data(data)]


class Served:
    """A Store and those who dial it."""

    def __init__(self) -> None:
        self.events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.store = Store(SALT, self.events)
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=600)
        self.number = 0
        self.open: list[socket.socket] = []
        self.ended = False

    def dial(self, salt: bytes | None = SALT, address: str = "127.0.0.1") -> Dialler:
        """A connection that the door has passed on, with its preface and first message read."""
        channel = Initiator(preface.STORE, salt)
        near = socket.create_connection(self.listener.getsockname(), WAIT, source_address=(address, 0))
        far, _ = self.listener.accept()
        self.number += 1
        self.open.append(near)
        self.store.adopt(far, channel.data_to_send(), self.number)
        return Dialler(near, channel)

    def silent(self) -> socket.socket:
        """One that has sent a preface and nothing else."""
        near = socket.create_connection(self.listener.getsockname(), WAIT)
        far, _ = self.listener.accept()
        self.number += 1
        self.open.append(near)
        self.store.adopt(far, preface.Preface(preface.STORE).encode(), self.number)
        return near

    def event(self) -> Any:
        return self.events.get(timeout=WAIT)

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.store.close()

    def close(self) -> None:
        self.end()
        for sock in [*self.open, self.listener]:
            with contextlib.suppress(OSError):
                sock.close()


@pytest.fixture
def torch_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`torch_is(source)`: what the store's process finds as torch.distributed; an echo server by default."""

    def put(source: str = ECHO) -> None:
        package = tmp_path / "torch"
        package.mkdir()
        (package / "__init__.py").touch()
        (package / "distributed.py").write_text(source)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    return put


@pytest.fixture
def dialler() -> type[Dialler]:
    return Dialler


@pytest.fixture
def served(torch_is: Callable[..., None], request: pytest.FixtureRequest) -> Iterator[Served]:
    torch_is(getattr(request, "param", ECHO))
    made = Served()
    yield made
    made.close()
