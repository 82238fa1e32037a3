"""Rounds whose floats are encoded between hosts: everybody ends with the same bits, nothing is lost for good, and a
host that dies in the middle changes nothing that is owed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flodl_planes.coordinator.transport_events import RelayLost, RoundDone
from flodl_planes.hub.relay_link import RemoteLink
from flodl_planes.plane.encoding import encoded_bytes
from flodl_planes.plane.sealed_socket import Stream
from flodl_wire.plane_messages import CHUNK_BYTES, Deposit, Round, TensorSpec

WAIT = 30.0
WIRES = ["bf16", "int8"]
MIXED = [
    TensorSpec("w", [300_001], "F32", "param"),
    TensorSpec("d", [5], "F64", "param"),
    TensorSpec("h", [1001], "BF16", "param"),
    TensorSpec("f", [77], "F16", "param"),
    TensorSpec("n", [3], "I64", "buffer"),
]


def section(rank: Any, dtype: str) -> Any:
    """The rank's floats of that dtype, bf16 as the upper halves that they are."""
    found = next(s for s in rank.layout.sections if s.dtype == dtype)
    kind = {"F32": np.float32, "F64": np.float64, "BF16": np.uint16, "F16": np.float16, "U8": np.uint8}[dtype]
    return rank.live.array[found.offset :][: found.elements * np.dtype(kind).itemsize].view(kind)


def same_bits(world: Any) -> bool:
    first, *others = world.ranks.values()
    return all((rank.live.array == first.live.array).all() for rank in others)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("beside", [set(), {"a"}, {"b"}], ids=["none", "first", "second"])
def test_every_host_ends_each_round_with_the_very_same_bits(make_world: Any, wire: str, beside: set[str]) -> None:
    world = make_world({"a": [0, 1], "b": [2], "c": [3]}, beside, tensors=MIXED, wire=wire).start()
    generator = np.random.default_rng(5)
    world.round(0, {"0": 1.0})
    assert same_bits(world)
    for number in range(1, 4):
        moved = []
        for rank in world.ranks.values():
            floats, half = section(rank, "F32"), section(rank, "F16")
            floats += generator.standard_normal(floats.size).astype(np.float32) * np.float32(1e-3)
            half += np.float16(0.25)
            section(rank, "F64")[:] = rank.number
            section(rank, "U8")[:] = rank.number
            moved.append(floats.copy())
        world.round(number, {"0": 0.1, "1": 0.2, "2": 0.3, "3": 0.4}, leader=2, wire=wire)
        assert same_bits(world)
        exact = np.average(np.array(moved, np.float64), axis=0, weights=[0.1, 0.2, 0.3, 0.4])
        np.testing.assert_allclose(section(world.ranks[0], "F32"), exact, atol=5e-5)
        np.testing.assert_allclose(section(world.ranks[0], "F64"), 2.0, rtol=1e-15)  # exact, whatever the wire
        np.testing.assert_array_equal(section(world.ranks[0], "U8"), 2)
        average = world.transport.average()[: 4 * floats.size].view(np.float32)
        np.testing.assert_array_equal(average, section(world.ranks[0], "F32"))
    assert world.leave() == {"a": 0, "b": 0, "c": 0}


@pytest.mark.parametrize("wire", WIRES)
def test_small_moves_are_not_lost_beside_large_ones(make_world: Any, wire: str) -> None:
    """Every rank moves most of its weights by a thousandth of what the first one moves; after many rounds they must be
    where exact averages would have brought them, give or take what one encoding may owe.
    """
    world = make_world({"a": [0], "b": [1]}, {"a"}, elements=1024, wire=wire).start()
    world.ranks[0].live.array[:] = 0
    world.round(0, {"0": 1.0})
    step = np.full(1024, 2.0**-10, np.float32)
    step[0] = 0.5
    rounds = 60
    for number in range(1, rounds + 1):
        for rank in world.ranks.values():
            rank.floats[:] += step * (1 + rank.number)  # 1.5 steps on average
        world.round(number, {"0": 0.5, "1": 0.5}, wire=wire)
        assert same_bits(world)
    owed = 3 * 0.75 / 127  # a step of int8 at each end
    np.testing.assert_allclose(world.ranks[1].floats, rounds * 1.5 * step.astype(np.float64), atol=owed)


def test_hosts_of_one_box_average_exactly_whatever_the_wire(make_world: Any) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, {"a", "b"}, elements=70_000, wire="int8").start()
    world.round(0, {"0": 1.0})
    values = np.random.default_rng(2).standard_normal((3, 70_000)).astype(np.float32)
    for rank in world.ranks.values():
        rank.floats[:] = values[rank.number]
    world.round(1, {"0": 0.25, "1": 0.25, "2": 0.5}, wire="int8")
    np.testing.assert_allclose(world.ranks[0].floats, np.average(values, axis=0, weights=[1, 1, 2]), atol=3e-7)
    assert same_bits(world)


@pytest.mark.parametrize(("wire", "most"), [("bf16", 0.51), ("int8", 0.27)])
def test_fewer_bytes_cross_the_network_both_ways(make_world: Any, wire: str, most: float) -> None:
    moved = []
    for spoken in ("float32", wire):
        world = make_world({"a": [0], "b": [1]}, {"a"}, elements=1_500_000, wire=wire).start()
        link = next(link for link in world.transport._relays.values() if isinstance(link, RemoteLink))
        world.round(0, {"0": 1.0})
        up, down = world.relays["b"]._hub.bytes_sent, link.link.bytes_sent
        world.round(1, {"0": 0.5, "1": 0.5}, wire=spoken)
        moved.append((world.relays["b"]._hub.bytes_sent - up, link.link.bytes_sent - down))
        world.next(RoundDone)
        assert sum(moved[-1]) == pytest.approx(world.next(RoundDone).bytes_moved, rel=0.01)
    assert moved[1][0] <= most * moved[0][0]
    assert moved[1][1] <= most * moved[0][1]


@pytest.mark.parametrize("wire", WIRES)
def test_a_host_without_work_only_listens_and_owes_nothing(make_world: Any, wire: str) -> None:
    world = make_world({"a": [0], "b": [1], "c": [2]}, {"a"}, elements=5000, wire=wire).start()
    world.round(0, {"0": 1.0})
    for number in range(1, 4):
        world.ranks[0].floats[:] += 0.5
        world.ranks[2].floats[:] += 1.5
        weights = {"0": 0.5, "2": 0.5} if number != 2 else {"0": 0.5, "1": 0.5}
        world.ranks[1].floats[:] += 0.5 if number == 2 else 99.0  # what an idle rank holds is of no interest
        world.round(number, weights, wire=wire)
        assert same_bits(world)
    np.testing.assert_allclose(world.ranks[0].floats, 1 + 1.0 + 0.5 + 1.0, rtol=1e-2)


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("outer", [{}, {"kind": "nesterov", "lr": 0.7, "momentum": 0.9}], ids=["plain", "nesterov"])
def test_a_host_lost_in_the_middle_of_a_round_changes_nothing_that_is_owed(
    make_world: Any, wire: str, outer: dict[str, Any]
) -> None:
    """The same run twice, once with a third host whose relay sends a part of its sum and dies: the same bits."""
    elements = 3 * CHUNK_BYTES // 4 + 77
    generator = np.random.default_rng(11)
    moves = generator.standard_normal((4, 2, elements)).astype(np.float32) * np.float32(0.01)
    ends = []
    for with_a_third in (False, True):
        hosts = {"a": [0], "b": [1], "c": [2]} if with_a_third else {"a": [0], "b": [1]}
        world = make_world(hosts, {"a"}, elements=elements, wire=wire, outer=outer)
        false = world.false_relay("c") if with_a_third else None
        world.start()
        weights = {"0": 0.5, "1": 0.5}
        world.round(0, {"0": 1.0}, hosts=[*hosts], alone=False)
        for number in range(1, 4):
            for rank in world.ranks.values():
                rank.floats[:] += moves[number, rank.number]
            if number == 2 and false:
                working = [rank.take_part() for rank in world.ranks.values()]
                thirds = {"0": 0.3, "1": 0.3, "2": 0.4}
                assert world.order(2, thirds, hosts=["a", "b", "c"], wire=wire, outer=bool(outer))
                piece = memoryview(generator.integers(0, 60, encoded_bytes(wire, CHUNK_BYTES // 4)).astype(np.uint8))
                false.stream(Stream(2, 0, 1, lambda n, piece=piece: (0, piece), lambda n: True))  # type: ignore[misc]
                attempt = world.transport._attempt
                while attempt.made < 1:
                    false.receive()
                false.close()
                assert world.next(RelayLost).interrupted == 2
                assert world.order(2, weights, hosts=["a", "b"], wire=wire, outer=bool(outer), attempt=1)
                assert [done.result(WAIT).attempt for done in working] == [1, 1]
                false = None
            else:
                names = ["a", "b", "c"] if false else ["a", "b"]
                world.round(number, weights, hosts=names, wire=wire, outer=bool(outer))
            assert same_bits(world)
        ends.append(world.ranks[1].live.array.copy())
    np.testing.assert_array_equal(*ends)


@pytest.mark.parametrize("wire", WIRES)
def test_ranks_that_do_not_wait_find_the_encoded_average_beside_their_snapshot(make_world: Any, wire: str) -> None:
    """cpu_async: a live buffer holds a snapshot of a model that has moved on since; the consensus is what counts."""
    world = make_world({"a": [0, 1], "b": [2]}, {"a"}, elements=70_000, wire=wire).start()
    world.round(0, {"0": 1.0})
    generator = np.random.default_rng(4)
    consensus = np.ones(70_000)
    for number in range(1, 4):
        moves = generator.standard_normal((3, 70_000)).astype(np.float32) * np.float32(1e-2)
        for rank in world.ranks.values():
            rank.floats[:] = (consensus + moves[rank.number]).astype(np.float32)
            rank.plane.send(Deposit(number, 1, 1))
        world.await_deposits(3)
        assert world.order(number, {"0": 0.25, "1": 0.25, "2": 0.5}, wire=wire, apart=True)
        averages = []
        for rank in world.ranks.values():
            while not isinstance(rank.plane.receive(), Round):
                pass
            while rank.plane.look() is None:
                rank.plane.wait(None)
            averages.append(rank.plane.average(Round(number, {"0": 1.0}, 0, False)).view(np.float32).copy())
        np.testing.assert_array_equal(averages[0], averages[1])
        np.testing.assert_array_equal(averages[0], averages[2])
        exact = consensus + np.average(moves, axis=0, weights=[1, 1, 2])
        np.testing.assert_allclose(averages[0], exact, atol=6e-4)
        consensus = averages[0].astype(np.float64)


@pytest.mark.parametrize("beside", [{"a"}, set()], ids=["beside", "remote"])
def test_a_run_that_goes_on_takes_up_its_consensus_and_its_momentum(make_world: Any, beside: set[str]) -> None:
    outer = {"kind": "nesterov", "lr": 0.5, "momentum": 0.5}
    world = make_world({"a": [0], "b": [1]}, beside, elements=5000, wire="bf16", outer=outer).start()
    world.transport.restore_outer({"w": np.full(5000, 2.0, np.float32), "another": np.zeros(3, np.float32)})
    given = np.full(5000, 3.0, np.float32).view(np.uint8)
    working = [rank.take_part() for rank in world.ranks.values()]
    said = Round(0, {"0": 1.0}, 0, False, given=True)
    assert world.begin(said, ["a", "b"], given)
    for done in working:
        done.result(WAIT)
    assert all((rank.floats == 3.0).all() for rank in world.ranks.values())
    for rank in world.ranks.values():
        rank.floats[:] += 1.0
    world.round(1, {"0": 0.5, "1": 0.5}, wire="bf16", outer=True)
    memory = 0.5 * 2.0 + 1.0
    np.testing.assert_array_equal(world.ranks[1].floats, 3.0 + 0.5 * (1.0 + 0.5 * memory))
    np.testing.assert_array_equal(world.transport.outer_state()["w"], memory)


def test_a_round_in_which_nobody_moves_after_a_broken_one_leaves_everything_as_it_was(make_world: Any) -> None:
    world = make_world({"a": [0], "b": [1], "c": [2]}, {"a"}, elements=3 * CHUNK_BYTES // 4, wire="bf16")
    false = world.false_relay("c")
    world.start()
    everybody = ["a", "b", "c"]
    world.round(0, {"0": 1.0}, hosts=everybody, alone=False)
    working = [rank.take_part() for rank in world.ranks.values()]
    assert world.order(1, {"2": 1.0}, hosts=everybody, wire="bf16")
    ones = np.full(CHUNK_BYTES // 4, 0x3F80, np.uint16).view(np.uint8)
    false.stream(Stream(1, 0, 1, lambda n: (0, memoryview(ones)), lambda n: True))  # type: ignore[arg-type]
    attempt = world.transport._attempt
    while attempt.made < 1:
        false.receive()
    false.close()
    assert world.next(RelayLost).interrupted == 1
    assert world.order(1, {}, hosts=["a", "b"], wire="bf16", attempt=1, alone=False)
    assert [done.result(WAIT).attempt for done in working] == [1, 1]
    for rank in world.ranks.values():
        rank.floats[:] += 1.0
    world.round(2, {"0": 0.5, "1": 0.5}, wire="bf16")
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.floats, 2.0)
