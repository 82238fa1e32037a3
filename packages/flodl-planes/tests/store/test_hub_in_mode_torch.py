"""The hub around the store: who gets there, and what the launcher is told."""

from __future__ import annotations

import array
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flodl_planes.hub.process import Hub
from flodl_wire import preface
from flodl_wire.channel import Initiator
from flodl_wire.faults import Fault, Refused
from flodl_wire.frames import STORE
from flodl_wire.hub_messages import FromHub, HubFailed, Passed, Ready, Stop, Taken, ToHub
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.specs import HubSpec

SALT = bytes(range(16))
WAIT = 20.0


class Launcher:
    """Our end of the pair with a hub that runs in a thread."""

    def __init__(self, folder: Path, dialler: Any) -> None:
        self.dialler = dialler
        self.pair, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.pair.settimeout(WAIT)
        spec = HubSpec("run", str(folder), str(folder), "torch", salt_hex=SALT.hex(), keyed=False)
        self.hub = threading.Thread(target=self._run, args=(Hub(spec, theirs), theirs))
        self.hub.start()
        self.listener = socket.create_server(("127.0.0.1", 0))
        assert isinstance(self.hear(), Ready)

    def _run(self, hub: Hub, pair: socket.socket) -> None:
        with pair, contextlib.suppress(Fault):  # a fault has been told by then
            hub.run()

    def hear(self) -> FromHub:
        return decode_message(self.pair.recv(1 << 17), FromHub, "the hub")

    def say(self, message: ToHub, *descriptors: int) -> None:
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        self.pair.sendmsg([encode_message(message)], rights)

    def dial(self, number: int, salt: bytes | None) -> Any:
        channel = Initiator(preface.STORE, salt)
        near = socket.create_connection(self.listener.getsockname(), WAIT)
        far, _ = self.listener.accept()
        with far:
            self.say(Passed(number, channel.data_to_send().hex(), "127.0.0.1"), far.fileno())
        assert self.hear() == Taken(number)
        return self.dialler(near, channel)


@pytest.fixture
def launcher(torch_is: Any, dialler: Any, tmp_path: Path) -> Iterator[Launcher]:
    torch_is()
    made = Launcher(tmp_path, dialler)
    yield made
    with contextlib.suppress(BrokenPipeError):
        made.say(Stop("over"))
    made.hub.join(WAIT)
    made.pair.close()
    made.listener.close()


def test_the_hub_wants_the_run_s_key_also_under_open_admission(launcher: Launcher) -> None:
    stranger = launcher.dial(1, None)
    with stranger.sock, pytest.raises(Refused) as caught:
        stranger.shake_hands()
    assert caught.value.code == "no-key"
    agent = launcher.dial(2, SALT)
    with agent.sock:
        agent.shake_hands()
        agent.send(b"word")
        assert agent.receive() == b"word"


def test_a_store_that_dies_fails_the_run(launcher: Launcher) -> None:
    agent = launcher.dial(1, SALT)
    with agent.sock:
        agent.shake_hands()
        agent.channel.send(STORE, b"die")
        agent.sock.sendall(agent.channel.data_to_send())
        failed = launcher.hear()
    assert isinstance(failed, HubFailed) and failed.code == "store-died"
