"""A relay and its ranks as processes: killed or stopped in mid-round, and strangers on the relay's socket."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flodl_planes.coordinator.transport_events import RankEnding, RankLost, RelayJoined, RelayLost, RoundDone
from flodl_planes.plane.frame_socket import FrameSocket, LinkEnded
from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.share import crossed, finish_line
from flodl_planes.plane.words import wait_until
from flodl_wire import blob, environ
from flodl_wire.messages import decode_message
from flodl_wire.plane_messages import Deposit, Dismiss, RankDown, RankHello, TensorSpec, Terms

ELEMENTS = 262_144 * 8  # eight chunks: four for each of two ranks
TERMS = Terms("cpu_sync", 1, 1, 1, 0, False)
HALVES = {"0": 0.5, "1": 0.5}
AVERAGE = (
    sum(range(ELEMENTS)) * 1.5
)  # of i·1 and i·2, which float32 holds exactly enough: sums below are of rounded values


class Processes:
    """Rank processes; what is left of them is killed after the test."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[str]] = []

    def rank(self, path: str, number: int, deed: str = "", at: int = 0) -> subprocess.Popen[str]:
        script = str(Path(__file__).with_name("rank_process.py"))
        process = subprocess.Popen(
            [sys.executable, script, path, str(number), str(ELEMENTS), deed, str(at)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.all.append(process)
        return process

    def relay(self, world: Any, host: str) -> subprocess.Popen[str]:
        code = "import sys; from flodl_planes.cli_relay import main; sys.exit(main([]))"
        env = os.environ | {environ.RELAY_JSON: blob.encode(world.spec(host))}
        process = subprocess.Popen([sys.executable, "-c", code], env=env, stdin=subprocess.PIPE, text=True)
        self.all.append(process)
        return process


@pytest.fixture
def processes() -> Iterator[Processes]:
    started = Processes()
    yield started
    for process in started.all:
        process.kill()
        process.communicate()


def finish(process: subprocess.Popen[str]) -> float:
    """What the rank's model sums to after the round; it then says goodbye."""
    assert process.stdout and process.stdin
    total = float(process.stdout.readline())
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.wait(30) == 0
    return total


def unharmed(process: subprocess.Popen[str]) -> bool:
    """A signal that was sent before would have been heard first."""
    process.send_signal(signal.SIGSTOP)
    seen = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    process.send_signal(signal.SIGCONT)
    return seen is not None and seen.si_code == os.CLD_STOPPED


@pytest.fixture
def undisturbed(make_world: Any, processes: Processes) -> float:
    """What two ranks end with when nothing happens."""
    world = make_world({"a": [0, 1]}, elements=ELEMENTS)
    world.start_relay("a")
    ranks = [processes.rank(world.relay_socket("a"), number) for number in (0, 1)]
    world.await_deposits(2)
    assert world.order(0, HALVES)
    first, second = map(finish, ranks)
    assert first == second == pytest.approx(AVERAGE, rel=1e-6)
    return first


@pytest.mark.parametrize("at", [0, 2, 3])
def test_the_average_is_bit_for_bit_the_same_when_a_rank_is_killed_in_the_middle_of_it(
    make_world: Any, processes: Processes, undisturbed: float, at: int
) -> None:
    world = make_world({"a": [0, 1]}, elements=ELEMENTS)
    world.start_relay("a")
    survivor = processes.rank(world.relay_socket("a"), 0)
    victim = processes.rank(world.relay_socket("a"), 1, "kill", at)
    world.await_deposits(2)
    assert world.order(0, HALVES)
    assert victim.wait(30) == -signal.SIGKILL
    assert world.next(RankLost) == RankLost(1, False)
    assert finish(survivor) == undisturbed
    assert world.outcomes["a"].result(30) == 0


def test_a_rank_that_stands_still_in_a_round_is_ended_and_those_who_wait_for_it_are_not(
    make_world: Any, processes: Processes, undisturbed: float
) -> None:
    world = make_world({"a": [0, 1]}, elements=ELEMENTS)
    world.start_relay("a")
    survivor = processes.rank(world.relay_socket("a"), 0)
    stopped = processes.rank(world.relay_socket("a"), 1, "stop", 1)
    world.await_deposits(2)
    assert world.order(0, HALVES)
    os.waitid(os.P_PID, stopped.pid, os.WSTOPPED | os.WNOWAIT)
    memory = world.relays["a"]._memory
    line = finish_line(memory, world.relays["a"]._round)
    assert wait_until(lambda: crossed(memory, line[:1]), lambda: False), "rank 0 has done its share"
    for rank in (0, 1):
        world.transport.expel(rank)
    assert world.next(RankEnding) == RankEnding(1)
    assert world.next(RankLost) == RankLost(1, False)
    assert stopped.wait(30) == -signal.SIGKILL
    assert finish(survivor) == undisturbed


def test_in_a_round_that_ranks_make_by_their_own_roads_only_the_stopped_one_is_ended(
    make_world: Any, processes: Processes
) -> None:
    world = make_world({"a": [0, 1]}, elements=ELEMENTS)
    world.start_relay("a")
    ranks = [processes.rank(world.relay_socket("a"), 0), processes.rank(world.relay_socket("a"), 1, "stop", 1)]
    world.await_deposits(2)
    assert world.order(1, HALVES, direct=True, hands=[0, 1])
    os.waitid(os.P_PID, ranks[1].pid, os.WSTOPPED | os.WNOWAIT)
    for rank in (0, 1):
        world.transport.expel(rank)
    assert world.next(RankEnding) == RankEnding(1)
    assert world.next(RankLost) == RankLost(1, False, 1)
    assert ranks[1].wait(30) == -signal.SIGKILL and unharmed(ranks[0])
    assert world.order(1, {"0": 1.0}, direct=True, hands=[0], attempt=1)
    world.transport.expel(0)  # waits
    world.transport.commit(1, 1)
    world.transport.expel(0)  # has its plan, and has not done it
    assert world.next(RoundDone).round == 1
    assert world.next(RankLost) == RankLost(0, False)


def test_a_stopped_rank_is_waited_for(make_world: Any, processes: Processes, undisturbed: float) -> None:
    world = make_world({"a": [0, 1]}, elements=ELEMENTS)
    world.start_relay("a")
    ranks = [processes.rank(world.relay_socket("a"), 0), processes.rank(world.relay_socket("a"), 1, "stop", 1)]
    world.await_deposits(2)
    assert world.order(0, HALVES)
    os.waitid(os.P_PID, ranks[1].pid, os.WSTOPPED)
    ranks[1].send_signal(signal.SIGCONT)
    assert [finish(rank) for rank in ranks] == [undisturbed, undisturbed]


def test_a_killed_relay_loses_its_host_and_the_rest_go_on(make_world: Any, processes: Processes) -> None:
    world = make_world({"a": [0], "b": [1]}, {"a"}, elements=ELEMENTS)
    relay = processes.relay(world, "b")
    orphan = processes.rank(world.relay_socket("b"), 1)
    del world.hosts["b"]
    world.start()
    world.await_deposits(1)
    working = world.ranks[0].take_part()
    relay.kill()
    lost = world.next(RelayLost)
    assert (lost.host, lost.interrupted) == ("b", None)
    assert world.order(0, {"0": 1.0}, hosts=["a"])
    working.result(30)
    assert world.next(RoundDone).round == 0
    assert orphan.wait(30) != 0  # its relay is gone: it cannot go on, and says so


def test_a_stopped_relay_beside_the_hub_is_lost_by_its_silence(make_world: Any, processes: Processes) -> None:
    world = make_world({"a": [0]})
    relay = processes.relay(world, "a")
    assert world.next(RelayJoined).host == "a"
    relay.send_signal(signal.SIGSTOP)
    assert world.next(RelayLost) == RelayLost("a", "nothing was heard for 2 s", None)


def test_a_relay_process_ends_with_0_after_its_ranks_goodbye_and_with_1_without_its_hub(
    make_world: Any, processes: Processes
) -> None:
    world = make_world({"a": [0], "b": [1]}, {"a"}, elements=ELEMENTS)
    relays = [processes.relay(world, host) for host in ("a", "b")]
    ranks = [processes.rank(world.relay_socket("ab"[number]), number) for number in (0, 1)]
    world.await_deposits(2)
    assert world.order(0, HALVES)
    assert finish(ranks[0]) > 0
    assert relays[0].wait(30) == 0
    world.transport.close()
    assert relays[1].wait(30) == 1


def stranger(path: str) -> FrameSocket:
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(path)
    return FrameSocket(sock)


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 64, b"GET / HTTP/1.0\r\n\r\n", b"\x02\0\0\0\x01{}", b""],
    ids=["size", "http", "json", "nothing"],
)
def test_garbage_on_the_relays_socket_costs_its_ranks_nothing(make_world: Any, garbage: bytes) -> None:
    world = make_world({"a": [0, 1]})
    world.start_relay("a")
    with socket.socket(socket.AF_UNIX) as guest:
        guest.connect(world.relay_socket("a"))
        guest.sendall(garbage)
        guest.shutdown(socket.SHUT_WR)
        assert guest.recv(1) == b""
    world.start(relays=False)
    world.round(0, HALVES)
    assert world.ranks[0].floats[0] == 1.5


def hello(rank: int, elements: int = 1000) -> tuple[RankHello, Segment]:
    tensors = [TensorSpec("w", [elements], "F32", "param")]
    layout = lay_out(tensors)
    return RankHello(rank, TERMS, tensors, layout.sections, "sig"), Segment.create("live", layout.total_bytes)


@pytest.mark.parametrize(("rank", "why"), [(7, "serves ranks 0, 1"), (0, "here already")])
def test_a_rank_that_does_not_belong_is_told_why(make_world: Any, rank: int, why: str) -> None:
    world = make_world({"a": [0, 1]})
    world.start_relay("a")
    first = stranger(world.relay_socket("a"))
    message, live = hello(0)
    first.send(message, [live.fd])
    world.await_hellos(1)
    guest = stranger(world.relay_socket("a"))
    message, other = hello(rank)
    guest.send(message, [other.fd])
    answer = decode_message(guest.receive()[0].body, RankDown, "the relay")
    assert isinstance(answer, Dismiss) and why in answer.reason
    with pytest.raises(LinkEnded):
        guest.receive()
    first.close()
    guest.close()


@pytest.mark.parametrize("fds", [0, 2], ids=["no descriptor", "two"])
def test_a_hello_without_exactly_one_segment_is_turned_away(make_world: Any, fds: int) -> None:
    world = make_world({"a": [0, 1]})
    world.start_relay("a")
    guest = stranger(world.relay_socket("a"))
    message, live = hello(0)
    guest.send(message, [live.fd] * fds)
    with pytest.raises(LinkEnded):
        guest.receive()
    guest.close()


def test_a_rank_that_speaks_before_its_hello_is_turned_away(make_world: Any) -> None:
    world = make_world({"a": [0, 1]})
    world.start_relay("a")
    guest = stranger(world.relay_socket("a"))
    guest.send(Deposit(0, 1, 1))
    with pytest.raises(LinkEnded):
        guest.receive()
    guest.close()
    assert world.next(RelayJoined).host == "a"


@pytest.mark.parametrize("hosts", [{"a": [0, 1]}, {"a": [0], "b": [1]}], ids=["one host", "two hosts"])
def test_hellos_of_models_that_differ_all_reach_the_hub_which_can_name_the_tensor(make_world: Any, hosts: Any) -> None:
    world = make_world(hosts)
    links = []
    for host in hosts:
        world.start_relay(host)
    for rank in (0, 1):
        link = stranger(world.relay_socket("b" if rank in hosts.get("b", []) else "a"))
        message, live = hello(rank, 1000 - rank)
        link.send(message, [live.fd])
        links.append(link)
    world.await_hellos(2)
    for rank, link in enumerate(links):
        world.transport.send_rank(rank, Dismiss("w differs"))
        frames = link.receive()
        while not frames or not isinstance(decode_message(frames[-1].body, RankDown, "the relay"), Dismiss):
            frames = link.receive()
        link.close()
