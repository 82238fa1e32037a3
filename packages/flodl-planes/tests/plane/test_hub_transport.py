"""Several hosts: what the hub carries, in which order it sums, and what happens when one of them is lost."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Raw

from flodl_planes.coordinator.transport_events import RankLost, RelayJoined, RelayLost, RoundDone, Taken
from flodl_planes.hub.strangers import STRANGERS
from flodl_planes.plane.frame_socket import FrameSocket
from flodl_planes.plane.sealed_socket import SealedSocket, dial
from flodl_wire import frames, preface
from flodl_wire.channel import Initiator
from flodl_wire.faults import Fault
from flodl_wire.messages import encode_message
from flodl_wire.plane_messages import Deposit, FromRank, RelayHello, Shared

WAIT = 30.0
QUARTERS = {str(rank): 0.25 for rank in range(4)}


def gone(stranger: socket.socket) -> bool:
    """Whether the other side ends the connection."""
    stranger.settimeout(WAIT)
    try:
        while stranger.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def trash(head: Any, length: int) -> memoryview:
    return memoryview(bytearray(length))


@pytest.mark.parametrize("beside", [set(), {"a"}, {"b"}, {"a", "b"}], ids=["none", "first", "second", "both"])
def test_two_hosts_average_whoever_sits_beside_the_hub(make_world: Any, beside: set[str]) -> None:
    world = make_world({"a": [0, 1], "b": [2, 3]}, beside, elements=5_000_000).start()
    for number in range(3):
        for rank in world.ranks.values():
            rank.floats[:] = rank.number + number
        world.round(number, QUARTERS)
        done = world.next(RoundDone)
        assert (done.round, done.attempt) == (number, 0)
        for rank in world.ranks.values():
            np.testing.assert_array_equal(rank.floats, np.float32(1.5 + number))
        np.testing.assert_array_equal(world.transport.average().view(np.float32), np.float32(1.5 + number))
    assert world.leave() == {"a": 0, "b": 0}


def test_sums_run_in_rank_and_host_order_so_a_run_repeats_bit_for_bit(make_world: Any) -> None:
    hosts = {"a": [0, 1], "b": [2], "c": [3, 4]}
    weights = {"0": 0.3, "1": 0.1, "2": 0.25, "3": 0.15, "4": 0.2}
    values = np.random.default_rng(7).standard_normal((5, 400_000)).astype(np.float32)
    results = []
    for beside in ({"a"}, {"c"}):
        world = make_world(hosts, beside, elements=400_000).start()
        for rank in world.ranks.values():
            rank.floats[:] = values[rank.number]
        world.round(0, weights)
        results.append([rank.floats.copy() for rank in world.ranks.values()])
    for ours in (*results[0], *results[1]):
        np.testing.assert_array_equal(ours, results[0][0])
    share = [np.float32(weights[str(rank)]) * values[rank] for rank in range(5)]
    by_hand = ((share[0] + share[1]) + share[2]) + (share[3] + share[4])
    np.testing.assert_allclose(results[0][0], by_hand, rtol=3e-7, atol=3e-7)
    exact = np.average(values.astype(np.float64), axis=0, weights=list(weights.values()))
    np.testing.assert_allclose(results[0][0], exact, atol=1e-6)


def test_each_chunk_that_comes_from_another_box_shows_that_a_round_gets_on(make_world: Any) -> None:
    world = make_world({"a": [0, 1], "b": [2, 3]}, {"a"}, elements=5_000_000).start()
    before = world.transport.moved
    world.round(0, QUARTERS)
    assert world.next(RoundDone)
    assert world.transport.moved - before == 20, "of 1 MiB"


def test_a_host_whose_ranks_are_idle_only_receives(make_world: Any) -> None:
    world = make_world({"a": [0], "b": [1], "c": [2]}, {"a"}).start()
    world.ranks[1].floats[:] = np.nan
    world.round(0, {"0": 0.5, "2": 0.5}, leader=2)
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.floats, 2.0)


def test_ranks_of_one_world_end_with_the_very_same_bits(make_world: Any) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, {"a"}, elements=600_000).start()
    generator = np.random.default_rng(3)
    for rank in world.ranks.values():
        rank.floats[:] = generator.standard_normal(600_000)
    world.round(0, {"0": 0.2, "1": 0.3, "2": 0.5})
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.live.array, world.ranks[0].live.array)


def test_nobody_applies_a_round_whose_host_is_lost_and_the_next_attempt_leaves_it_out(make_world: Any) -> None:
    """Host b is a false relay that takes part in nothing: the attempt cannot end, and its loss must cost only that."""
    world = make_world({"a": [0, 1], "b": [2], "c": [3]}, {"a"}, elements=3_000_000)
    false = world.false_relay("b")
    world.start()
    working = [rank.take_part() for rank in world.ranks.values()]
    assert world.order(0, {"0": 0.25, "1": 0.25, "2": 0.25, "3": 0.25}, hosts=["a", "b", "c"], alone=False)
    false.close()
    lost = world.next(RelayLost)
    assert (lost.host, lost.interrupted) == ("b", 0)
    assert [rank.floats[0] for rank in world.ranks.values()] == [1.0, 2.0, 4.0]
    assert world.transport.average() is None
    assert world.order(0, {"0": 0.25, "1": 0.25, "3": 0.5}, hosts=["a", "c"], attempt=1)
    for done in working:
        assert done.result(WAIT).attempt == 1
    assert world.next(RoundDone).attempt == 1
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.floats, 2.75)
    assert not world.order(0, {"0": 1.0}, hosts=["a", "c"], attempt=2), "round 0 is committed"


def test_a_lost_host_can_leave_one_alone_who_then_averages_by_itself(make_world: Any) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, {"a"}, elements=3_000_000)
    false = world.false_relay("b")
    world.start()
    working = [rank.take_part() for rank in world.ranks.values()]
    assert world.order(0, {"0": 0.25, "1": 0.25, "2": 0.5}, hosts=["a", "b"], alone=False)
    false.close()
    assert world.next(RelayLost).interrupted == 0
    assert world.order(0, {"0": 0.5, "1": 0.5}, hosts=["a"], attempt=1)
    for done in working:
        done.result(WAIT)
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.floats, 1.5)


def test_a_rank_that_dies_after_its_deposit_still_counts(make_world: Any) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, {"a"}, elements=600_000).start()
    world.ranks[1].plane.close()
    assert world.next(RankLost) == RankLost(1, False)
    working = [world.ranks[0].take_part(), world.ranks[2].take_part()]
    assert world.order(0, {"0": 0.25, "1": 0.25, "2": 0.5})
    for done in working:
        done.result(WAIT)
    np.testing.assert_array_equal(world.ranks[0].floats, 2.25)
    np.testing.assert_array_equal(world.ranks[2].floats, 2.25)


def test_a_round_waits_for_nobody_once_it_is_decided(make_world: Any) -> None:
    world = make_world({"a": [0], "b": [1]}, {"a"}, elements=300_000).start()
    world.ranks[0].take_part()
    assert world.order(0, {"0": 0.5, "1": 0.5})
    assert world.next(RoundDone).round == 0
    world.transport.drop_host("b", "it fell silent")
    assert world.next(RelayLost) == RelayLost("b", "it fell silent", None)


def test_messages_to_a_rank_that_is_gone_go_nowhere(make_world: Any) -> None:
    world = make_world({"a": [0]}).start()
    world.transport.send_rank(17, Deposit(0, 0, 0))
    assert not world.order(0, {"0": 1.0}, hosts=["nowhere"])


def test_no_commit_leaves_before_the_round_is_decided(make_world: Any) -> None:
    """Host b has every chunk of the average when it is lost in the moment of decision: it must not have applied it."""
    world = make_world({"a": [0], "b": [1]}, {"a"}, elements=600_000)
    false = world.false_relay("b")
    world.start()
    chunks = 0
    with world.transport._lock:  # nothing is decided meanwhile
        assert world.order(0, {"0": 1.0}, hosts=["a", "b"], alone=False)
        while chunks < 3:
            chunks += sum(frame.kind == frames.CHUNK for frame in false.receive())
        world.transport.drop_host("b", "lost in this very moment")
    assert world.next(RelayLost).interrupted == 0
    messages = []
    with pytest.raises(Fault):
        while True:
            messages += [bytes(frame.body) for frame in false.receive()]
    assert not any(b"commit" in message for message in messages)
    false.close()
    working = world.ranks[0].take_part()
    assert world.order(0, {"0": 1.0}, hosts=["a"], attempt=1)
    assert working.result(WAIT).attempt == 1
    done = world.next(RoundDone)
    assert (done.round, done.attempt) == (0, 1)


# strangers


@pytest.mark.parametrize("salt", [bytes(16), None], ids=["another salt", "no salt"])
def test_a_dialler_with_another_key_is_turned_away(make_world: Any, salt: bytes | None) -> None:
    world = make_world({"a": [0]})
    with pytest.raises(Fault):
        dial("127.0.0.1", world.port, salt, trash)


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        os.urandom(4096),
        bytes.fromhex("f10d1fd1000102 01".replace(" ", "")) + bytes(48),
        b"\xf1",
    ],
    ids=["http", "noise", "a preface and zeros", "half a preface"],
)
def test_garbage_at_the_door_costs_nobody_else_anything(make_world: Any, garbage: bytes) -> None:
    world = make_world({"a": [0], "b": [1]}, {"a"})
    with socket.create_connection(("127.0.0.1", world.port)) as stranger:
        stranger.sendall(garbage)
        stranger.shutdown(socket.SHUT_WR)
        assert gone(stranger)
    world.start()
    world.round(0, {"0": 0.5, "1": 0.5})
    assert world.ranks[1].floats[0] == 1.5


def test_a_stranger_who_says_nothing_is_dropped_in_time(make_world: Any) -> None:
    world = make_world({"a": [0]})
    with socket.create_connection(("127.0.0.1", world.port)) as stranger:
        assert gone(stranger)


def test_a_crowd_that_says_nothing_keeps_no_relay_out(make_world: Any) -> None:
    """Each is in hand at once, so the door has room; over the cap the oldest of the busiest address goes."""
    world = make_world({"a": [0], "b": [1]}, {"a"})
    crowd = [socket.create_connection(("127.0.0.1", world.port)) for _ in range(STRANGERS + 40)]
    for one in crowd[1::2]:
        one.sendall(bytes.fromhex("f10d1fd100010201"))
    assert [world.next(Taken).number for _ in crowd] == list(range(len(crowd)))
    assert gone(crowd[0]) and gone(crowd[30])
    world.start()
    world.round(0, {"0": 0.5, "1": 0.5})
    assert world.ranks[1].floats[0] == 1.5
    world.transport.close()
    assert all(gone(one) for one in crowd), "nobody is left hanging at the end"
    for one in crowd:
        one.close()


@pytest.mark.parametrize(
    "garbage", [b"\xff" * 100, b"\x05\0\0\0\x02hello", b"\x02\0\0\0\x01{}"], ids=["size", "kind", "json"]
)
def test_garbage_on_the_hubs_unix_socket_costs_nobody_else_anything(make_world: Any, garbage: bytes) -> None:
    world = make_world({"a": [0]})
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.connect(world.hub_socket)
        stranger.sendall(garbage)
        assert stranger.recv(1) == b""
    world.start()
    world.round(0, {"0": 1.0})


def speak(world: Any, *messages: Any) -> SealedSocket:
    link = dial("127.0.0.1", world.port, bytes(range(16)), trash)
    for message in messages:
        link.post(message)
    return link


def test_a_second_relay_for_a_host_or_a_rank_is_refused_and_the_first_stays(make_world: Any) -> None:
    world = make_world({"a": [0]}, {"a"}).start()
    for hello in (RelayHello("a", [5]), RelayHello("b", [0]), RelayHello("b", [])):
        link = speak(world, hello)
        with pytest.raises(Fault):
            while True:
                link.receive()
        link.close()
    world.round(0, {"0": 1.0})


@pytest.mark.parametrize(
    "message",
    [FromRank(9, Raw(encode_message(Deposit(0, 0, 0)))), Shared([1], 0, 0), FromRank(1, Raw(b'{"type": "nonsense"}'))],
    ids=["a foreign rank", "memory over a network", "a message nobody knows"],
)
def test_a_relay_that_breaks_the_protocol_loses_its_host(make_world: Any, message: Any) -> None:
    world = make_world({"a": [0]}, {"a"}).start()
    link = speak(world, RelayHello("b", [1]), message)
    lost = world.next(RelayLost)
    assert lost.host == "b" and lost.why
    link.close()


def test_a_chunk_before_any_round_ends_the_link(make_world: Any) -> None:
    world = make_world({"a": [0]}, {"a"}).start()
    link = speak(world, RelayHello("b", [1]))
    while world.next(RelayJoined).host != "b":
        pass
    link._write(2, bytes(16), bytes(100))
    assert "no round" in world.next(RelayLost).why
    link.close()


def test_a_relay_that_falls_silent_is_lost(make_world: Any) -> None:
    world = make_world({"a": [0]}, {"a"}).start()
    with socket.create_connection(("127.0.0.1", world.port)) as sock:
        channel = Initiator(preface.RELAY, bytes(range(16)))
        sock.sendall(channel.data_to_send())
        channel.receive_data(sock.recv(4096))
        channel.send(frames.MESSAGE, encode_message(RelayHello("b", [1])))
        sock.sendall(channel.data_to_send())  # and from here on not even a beat
        lost = world.next(RelayLost)
        assert (lost.host, lost.why) == ("b", "nothing was heard for 2 s")


def test_a_unix_relay_with_the_wrong_memory_is_refused(make_world: Any) -> None:
    world = make_world({"a": [0]}, {"a"}).start()
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(world.hub_socket)
    link = FrameSocket(sock)
    link.send(RelayHello("b", [1]))
    with Path(os.devnull).open("rb") as nothing:
        link.send(Shared([1], 4000, 4000), [nothing.fileno()] * 3)
    assert "no sealed segment" in world.next(RelayLost).why
    link.close()
