"""The way in: dialling, the handshake, and what is said when it fails."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import struct
import subprocess
import time
from collections.abc import Iterator

import msgspec
import pytest
from agent_fakes import SALT, Box, FakeWindow, Running

from flodl_agent import road
from flodl_wire import preface
from flodl_wire.devices import CpuDevices
from flodl_wire.join_messages import Hello, Reject
from flodl_wire.specs import AgentSpec


def dialling(box: Box, host: str, port: int) -> Running:
    return box.agent(AgentSpec("node-a", host, port, SALT.hex(), CpuDevices(1)))


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port whose accept queue is full: the kernel drops what comes, like a firewall."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
            fillers.append(filler)
        yield listener.getsockname()[1]
        for filler in fillers:
            filler.close()


def test_a_closed_port_is_tried_until_the_budget_is_spent(box: Box, free_port: int) -> None:
    begun = time.monotonic()
    agent = dialling(box, "127.0.0.1", free_port)
    assert agent.wait() == 1
    assert (
        f"cannot reach the controller at 127.0.0.1:{free_port}: nothing listens on that port (refused " in agent.said()
    )
    assert time.monotonic() - begun > 2.5


def test_dropped_packets_are_told_apart_from_a_closed_port(box: Box, black_hole: int) -> None:
    agent = dialling(box, "127.0.0.1", black_hole)
    assert agent.wait() == 1
    assert "no answer in 3 s, packets are dropped on the way" in agent.said()


@pytest.mark.skipif(
    subprocess.run("unshare -rn true", shell=True, capture_output=True).returncode != 0,
    reason="no network namespace can be made here: unshare -rn true",
)
def test_a_net_without_a_route_is_told_apart_from_both(box: Box) -> None:
    agent = box.start("run", box.environment(), "unshare", "-rn")
    spec = AgentSpec("node-a", "192.0.2.1", 1337, SALT.hex(), CpuDevices(1))
    agent.write(msgspec.json.encode(spec) + b"\n")
    assert agent.wait() == 1
    assert "no route leads to that address from here" in agent.said()


def test_a_controller_that_comes_later_is_found(box: Box, free_port: int) -> None:
    agent = dialling(box, "127.0.0.1", free_port)
    window = FakeWindow(port=free_port)
    assert window.link().wait_for(Hello).host == "node-a"
    window.close()
    assert agent.wait() == 1


def test_the_first_address_that_answers_wins(monkeypatch: pytest.MonkeyPatch, black_hole: int) -> None:
    """A name with a link-local address without interface, a black hole and a good one."""
    with socket.create_server(("127.0.0.2", black_hole)) as good:

        async def resolve(*_: object, **__: object) -> list[object]:
            found = [("fe80::1", black_hole, 0, 0), ("127.0.0.1", black_hole), ("127.0.0.2", black_hole)]
            return [
                (socket.AF_INET6 if ":" in at[0] else socket.AF_INET, socket.SOCK_STREAM, 6, "", at) for at in found
            ]

        async def connect() -> None:
            monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
            begun = time.monotonic()
            with await road.connect("ctrl", black_hole, 5) as sock:
                assert sock.getpeername() == good.getsockname()
            assert time.monotonic() - begun < 2

        asyncio.run(connect())


@pytest.mark.parametrize("number", ["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def test_a_number_needs_no_name_service_and_its_connection_is_kept_alive(
    monkeypatch: pytest.MonkeyPatch, number: str
) -> None:
    """What clouds drop for being idle is shown to be in use; and a number waits for no thread."""

    async def resolve(*_: object, **__: object) -> list[object]:
        raise AssertionError("somebody was asked")

    async def connect() -> None:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        with await road.connect(number, listener.getsockname()[1], 5) as sock:
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) < 240

    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        asyncio.run(connect())


def test_a_wrong_token_is_refused_by_name_and_at_once(box: Box, window: FakeWindow) -> None:
    spec = window.spec()
    spec.salt_hex = "f" * 32
    agent = box.agent(spec)
    window.link().wait_end()
    assert agent.wait() == 1
    assert "the other side holds another salt or token" in agent.said()


def test_another_program_on_the_port_is_no_controller(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        agent = dialling(box, *other.getsockname())
        other.settimeout(5)
        conn, _ = other.accept()
        with conn:
            conn.sendall(b"220 mail.example.com ESMTP ready, and quite a long banner it is\r\n")
            assert agent.wait() == 1
    assert "not flodl (it says '220 mail.example.com ESMTP ready, and quite a lo')" in agent.said()
    assert "Traceback" not in agent.said()


def test_a_refusal_is_read_also_when_a_reset_follows_it(box: Box) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        agent = dialling(box, *other.getsockname())
        other.settimeout(5)
        conn, _ = other.accept()
        assert conn.recv(100)
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        conn.sendall(preface.encode_refusal(preface.REASON_KEY))
        conn.close()
        assert agent.wait() == 1
    assert "the other side holds another salt or token" in agent.said()


def test_a_reject_is_printed_with_its_fix(box: Box, window: FakeWindow) -> None:
    agent = box.agent(window.spec())
    link = window.link()
    link.wait_for(Hello)
    link.send(Reject("window-closed", "cannot admit node-a", "the world has formed", "wait for the next run"))
    link.close()
    assert agent.wait() == 1
    assert "cannot admit node-a: the world has formed\nfix: wait for the next run" in agent.said()


def test_the_hello_carries_the_manifest_and_another_is_refused_before_dialling(box: Box, window: FakeWindow) -> None:
    manifest = box.project / "fdl.yml"
    manifest.write_text("commands: {}\n")
    digest = hashlib.sha256(manifest.read_bytes()).hexdigest()
    box.agent(window.spec(path=str(box.project), manifest_hash=digest))
    link = window.link()
    hello = link.wait_for(Hello)
    assert hello.manifest_hash == digest and hello.boot_id and hello.cores >= 1 and len(hello.agent) == 16
    link.close()
    manifest.write_text("commands: {other: {}}\n")
    agent = box.agent(window.spec(path=str(box.project), manifest_hash=digest))
    assert agent.wait() == 1
    assert f"{manifest} there is another file than the controller's" in agent.said()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"", "stdin was closed before it came"),
        (b"{}\n", "cannot read the agent's spec on stdin: Object missing required field `host`"),
        (b"nonsense\n", "cannot read the agent's spec on stdin"),
    ],
)
def test_a_spec_that_cannot_be_read_is_no_traceback(box: Box, line: bytes, sentence: str) -> None:
    agent = box.start("run", box.environment())
    agent.write(line)
    agent.close_stdin()
    assert agent.wait() == 1
    assert sentence in agent.said() and "Traceback" not in agent.said()
