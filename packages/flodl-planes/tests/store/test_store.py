"""Store channels, from the door's descriptor to the store on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_planes.coordinator.transport_events import Met, Taken
from flodl_planes.hub.strangers import STRANGERS
from flodl_wire.faults import Refused

NO_TORCH = "raise ModuleNotFoundError(\"No module named 'torch'\")"
BROKEN_TORCH = "raise RuntimeError('libc10 is of another world')"


def children() -> list[int]:
    """Living processes of ours that serve a store."""
    found = []
    for task in Path(f"/proc/{os.getpid()}/task").iterdir():
        found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"store_server" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_bytes_pass_both_ways_and_each_direction_ends_by_itself(served) -> None:
    dialler = served.dial()
    assert served.event() == Taken(1)
    dialler.shake_hands()
    dialler.send(b"question")
    assert dialler.receive() == b"question"
    dialler.send(b"last")
    dialler.send(b"")
    assert dialler.receive() == b"last"
    assert dialler.receive() == b"", "the store has closed its side too"


def test_the_store_starts_with_the_first_that_shows_its_key_and_ends_with_us(served) -> None:
    served.dial(bytes(16))
    served.dial(None)
    dialler = served.dial()
    dialler.shake_hands()
    assert children() == []
    dialler.send(b"word")
    assert dialler.receive() == b"word"
    assert [served.event() for _ in range(4)] == [Taken(1), Taken(2), Taken(3), Met()]
    another = served.dial()
    another.shake_hands()
    another.send(b"more")
    assert another.receive() == b"more"
    assert served.event() == Taken(4) and served.events.empty(), "that they have met is told once"
    assert len(children()) == 1
    served.end()
    assert children() == []
    with pytest.raises(ConnectionResetError):
        dialler.receive()


@pytest.mark.parametrize("salt, code", [(bytes(16), "wrong-key"), (None, "no-key")])
def test_another_key_and_none_are_refused_by_name(served, salt: bytes | None, code: str) -> None:
    dialler = served.dial(salt)
    with pytest.raises(Refused) as caught:
        dialler.shake_hands()
    assert caught.value.code == code


def test_a_crowd_that_says_nothing_keeps_nobody_out(served) -> None:
    """Each is in hand at once, so the door has room; over the cap the oldest of the busiest address goes."""
    crowd = [served.silent() for _ in range(STRANGERS + 40)]
    dialler = served.dial(address="127.0.0.2")
    assert [served.event().number for _ in range(served.number)] == list(range(1, served.number + 1))
    dialler.shake_hands()
    dialler.send(b"word")
    assert dialler.receive() == b"word"
    assert crowd[0].recv(1) == b"" and crowd[30].recv(1) == b""


def test_a_stranger_that_dawdles_is_dropped(served) -> None:
    assert served.silent().recv(1) == b""


@pytest.mark.parametrize("served", [NO_TORCH], indirect=True)
def test_a_controller_without_torch_says_what_to_install(served) -> None:
    dialler = served.dial()
    assert served.event() == Taken(1)
    dialler.shake_hands()
    dialler.send(b"word")
    fault = served.event()
    assert (fault.code, fault.what) == ("no-torch", "cannot serve the ranks' rendezvous")
    assert fault.why.endswith("does not load it (No module named 'torch')")
    assert fault.fix == f"{sys.executable} -m pip install 'flodl-planes[torch]'"
    with pytest.raises(ConnectionResetError):
        dialler.receive()


@pytest.mark.parametrize("served", [BROKEN_TORCH], indirect=True)
def test_a_store_that_cannot_start_says_its_last_words(served) -> None:
    dialler = served.dial()
    dialler.shake_hands()
    dialler.send(b"word")
    assert served.event() == Taken(1)
    assert served.event().why == "RuntimeError: libc10 is of another world"


def test_a_store_that_dies_is_the_hub_s_to_know(served) -> None:
    dialler = served.dial()
    dialler.shake_hands()
    dialler.send(b"die")
    assert [served.event() for _ in range(2)] == [Taken(1), Met()]
    fault = served.event()
    assert (fault.code, fault.why) == ("store-died", "its process exited with code 7")
    assert "the controller's own box" in fault.fix


def test_the_store_s_process_ends_with_its_stdin(torch_is) -> None:
    torch_is("def TCPStore(*words, **more):\n    pass")
    argv = [sys.executable, "-m", "flodl_planes.hub.store_server"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdin
        port = int(process.stdout.readline().partition(b":")[2].strip(b" }\n"))
        process.stdin.close()
        assert process.wait(20) == 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 5)
