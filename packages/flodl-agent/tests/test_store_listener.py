"""Mode torch's rendezvous: bytes of a rank's store connection, sealed, to a controller that speaks the wire."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from agent_fakes import PATIENCE, SALT

from flodl_agent.store_listener import owner
from flodl_wire import preface
from flodl_wire.channel import Responder
from flodl_wire.frames import STORE

SERVE = """
import asyncio, sys
from flodl_agent.store_listener import StoreListener

async def main():
    listener = StoreListener(("127.0.0.1", int(sys.argv[1])), bytes(range(16)), lambda line: print(line, flush=True))
    listener.open()
    print(listener.port, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    listener.close()

asyncio.run(main())
"""


class FarEnd:
    """The controller's end of one store channel, blocking."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        self.sock = sock
        self.channel = Responder(lambda keyed: SALT if keyed else None, kinds=(preface.STORE,))
        self.bodies: list[bytes] = []

    def __enter__(self) -> FarEnd:
        return self

    def __exit__(self, *exc: object) -> None:
        self.sock.close()

    def receive(self) -> bytes:
        """The body of the next store frame; b"" = their direction has ended."""
        while not self.bodies:
            data = self.sock.recv(1 << 16)
            assert data, "the channel was closed"
            frames = self.channel.receive_data(data)
            self.sock.sendall(self.channel.data_to_send())
            self.bodies += [bytes(frame.body) for frame in frames]
        return self.bodies.pop(0)

    def receive_all(self) -> bytes:
        return b"".join(iter(self.receive, b""))

    def send(self, data: bytes) -> None:
        for start in range(0, max(1, len(data)), 1 << 20):
            self.channel.send(STORE, data[start : start + (1 << 20)])
            self.sock.sendall(self.channel.data_to_send())


@pytest.fixture
def controller() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(PATIENCE)
        yield made


@pytest.fixture
def listener(controller: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """In a process of its own; its stdout: the port, then complaints."""
    argv = [sys.executable, "-c", SERVE, str(controller.getsockname()[1])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout and process.stdin and process.stderr
        yield process
        process.stdin.close()
        assert process.stderr.read() == b""
        assert process.wait(PATIENCE) == 0


@pytest.fixture
def port(listener: subprocess.Popen[bytes]) -> int:
    assert listener.stdout
    return int(listener.stdout.readline())


def rank(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), PATIENCE)


def receive_all(sock: socket.socket) -> bytes:
    return b"".join(iter(lambda: sock.recv(1 << 16), b""))


def far_end(controller: socket.socket) -> FarEnd:
    return FarEnd(controller.accept()[0])


def test_each_connection_is_one_channel_and_bytes_pass_both_ways(controller: socket.socket, port: int) -> None:
    for word in (b"first", b"second"):
        with rank(port) as near:
            near.sendall(word)
            with far_end(controller) as far:
                assert far.receive() == word
                far.send(word[::-1])
                assert near.recv(100) == word[::-1]


def test_a_direction_that_ends_leaves_the_other_open(controller: socket.socket, port: int) -> None:
    with rank(port) as near:
        near.sendall(b"question")
        near.shutdown(socket.SHUT_WR)
        with far_end(controller) as far:
            assert far.receive_all() == b"question"
            far.send(b"answer")
            far.send(b"")
            assert receive_all(near) == b"answer"
            assert far.sock.recv(1) == b"", "both directions have ended: the channel closes"


def test_much_data_arrives_whole_at_a_slow_reader(controller: socket.socket, port: int) -> None:
    data = bytes(range(256)) * (8 << 12)  # 8 MiB, more than all buffers on the way

    def speak(near: socket.socket) -> None:
        near.sendall(data)
        near.shutdown(socket.SHUT_WR)

    with rank(port) as near:
        speaker = threading.Thread(target=speak, args=(near,))
        speaker.start()
        with far_end(controller) as far:
            assert far.receive_all() == data
            speaker.join()
            answer = threading.Thread(target=lambda: (far.send(data), far.send(b"")))
            answer.start()
            assert receive_all(near) == data
            answer.join()


def test_who_connects_and_says_nothing_costs_the_controller_nothing(controller: socket.socket, port: int) -> None:
    with rank(port) as silent, rank(port) as near:
        near.sendall(b"word")
        with far_end(controller) as far:
            assert far.receive() == b"word"
            silent.shutdown(socket.SHUT_WR)
            assert silent.recv(1) == b""
            controller.setblocking(False)
            with pytest.raises(BlockingIOError):
                controller.accept()


def test_a_controller_that_is_too_busy_is_dialled_again(controller: socket.socket, port: int) -> None:
    with rank(port) as near:
        near.sendall(b"word")
        with controller.accept()[0] as sock:
            sock.recv(100)
            sock.sendall(preface.encode_refusal(preface.REASON_BUSY))
        controller.accept()[0].close()
        with far_end(controller) as far:
            assert far.receive() == b"word"


def test_a_controller_that_closes_is_a_dead_store(controller: socket.socket, port: int) -> None:
    with rank(port) as near:
        near.sendall(b"word")
        with far_end(controller) as far:
            far.receive()
        with contextlib.suppress(ConnectionResetError):
            assert near.recv(1) == b""


def test_a_controller_that_is_gone_is_a_dead_store_and_the_reason_is_told(
    controller: socket.socket, listener: subprocess.Popen[bytes], port: int
) -> None:
    controller.close()
    with rank(port) as near:
        near.sendall(b"word")
        with contextlib.suppress(ConnectionResetError):
            assert near.recv(1) == b""
    assert listener.stdout
    assert b"did not get through to the controller: " in listener.stdout.readline()


def test_another_salt_is_told_at_once(controller: socket.socket, listener: subprocess.Popen[bytes], port: int) -> None:
    with rank(port) as near:
        near.sendall(b"word")
        with controller.accept()[0] as sock:
            sock.recv(100)
            sock.sendall(preface.encode_refusal(preface.REASON_KEY))
        with contextlib.suppress(ConnectionResetError):
            assert near.recv(1) == b""
    assert listener.stdout
    assert b"the other side holds another salt or token" in listener.stdout.readline()


def test_the_owner_of_a_connection_is_read_from_the_kernels_table(controller: socket.socket) -> None:
    port = controller.getsockname()[1]
    with rank(port) as near, controller.accept()[0]:
        assert owner(near.getsockname(), port) == os.getuid()
        assert owner(("127.0.0.1", 1), port) is None


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, to be another user")
def test_another_user_of_the_box_is_dropped(controller: socket.socket, port: int) -> None:
    dial = f"exec 3<>/dev/tcp/127.0.0.1/{port}; echo word >&3; cat <&3"
    argv = ["setpriv", "--reuid", "65534", "--clear-groups", "bash", "-c", dial]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    assert done.stdout == b""
    controller.setblocking(False)
    with pytest.raises(BlockingIOError):
        controller.accept()
