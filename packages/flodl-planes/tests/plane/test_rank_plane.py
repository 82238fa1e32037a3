"""A rank and its relay: a world on one box, from the hello to the goodbye."""

from __future__ import annotations

import gc
import os
import resource
import threading
from typing import Any

import numpy as np
import pytest

from flodl_planes.coordinator.transport_events import RankLost, RelayJoined, RoundDone
from flodl_wire.faults import Broken, Transient
from flodl_wire.plane_messages import Deposit, Dismiss, Finish, Leaving, Plan, TensorSpec
from flodl_wire.result import RunResult

THIRDS = {"0": 1 / 3, "1": 1 / 3, "2": 1 / 3}


def test_three_ranks_of_one_box_average_among_themselves(make_world: Any) -> None:
    world = make_world({"a": [0, 1, 2]}, elements=3_000_000).start()
    world.round(0, THIRDS)
    for rank in world.ranks.values():
        np.testing.assert_allclose(rank.floats, 2.0, rtol=1e-6)
    assert world.leave() == {"a": 0}


def test_weights_say_how_much_a_rank_counts_and_an_idle_rank_carries_nothing(make_world: Any) -> None:
    world = make_world({"a": [0, 1, 2]}).start()
    world.ranks[2].floats[:] = np.nan
    world.round(0, {"0": 0.25, "1": 0.75})
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.floats, np.float32(0.25 * 1 + 0.75 * 2))


def test_a_broadcast_changes_no_bit_of_the_leaders_model(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    world.ranks[0].live.array[:] = np.random.default_rng(1).integers(0, 256, 4000, np.uint8)  # NaNs and all
    before = world.ranks[0].live.array.copy()
    world.round(0, {"0": 1.0})
    for rank in world.ranks.values():
        np.testing.assert_array_equal(rank.live.array, before)


def test_when_nobody_moved_everybody_keeps_what_it_has(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    world.round(0, {})
    assert [rank.floats[0] for rank in world.ranks.values()] == [1.0, 2.0]
    assert world.next(RoundDone).round == 0


@pytest.mark.parametrize("beside", [True, False])
def test_a_world_of_one_rank_works(make_world: Any, beside: bool) -> None:
    world = make_world({"a": [0]}, {"a"} if beside else set()).start()
    world.round(0, {"0": 1.0})
    assert world.ranks[0].floats[0] == 1.0
    assert world.leave() == {"a": 0}


def test_a_model_without_tensors_works(make_world: Any) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, {"a"}, tensors=[]).start()
    world.round(0, {"0": 1.0})
    world.round(1, THIRDS)
    assert world.transport.average().nbytes == 0
    assert world.leave() == {"a": 0, "b": 0}


def test_integers_come_from_the_leader_and_every_float_dtype_is_averaged(make_world: Any) -> None:
    tensors = [
        TensorSpec("steps", [], "I64", "buffer"),
        TensorSpec("w", [5, 3], "F32", "param"),
        TensorSpec("half", [7], "F16", "param"),
        TensorSpec("brain", [9], "BF16", "param"),
        TensorSpec("double", [4], "F64", "param"),
    ]
    world = make_world({"a": [0, 1]}, tensors=tensors).start()
    layout = world.ranks[0].layout

    def view(rank: int, index: int, dtype: Any, count: int) -> Any:
        start = layout.offsets[index]
        return world.ranks[rank].live.array[start : start + count * np.dtype(dtype).itemsize].view(dtype)

    for rank in (0, 1):
        view(rank, 0, np.int64, 1)[:] = 100 + rank
        view(rank, 1, np.float32, 15)[:] = rank
        view(rank, 2, np.float16, 7)[:] = rank
        view(rank, 3, np.uint16, 9)[:] = (np.full(9, rank, np.float32).view(np.uint32) >> 16).astype(np.uint16)
        view(rank, 4, np.float64, 4)[:] = rank
    world.round(0, {"0": 0.5, "1": 0.5}, leader=1)
    for rank in (0, 1):
        assert view(rank, 0, np.int64, 1)[0] == 101
        for index, dtype, count in ((1, np.float32, 15), (2, np.float16, 7), (4, np.float64, 4)):
            np.testing.assert_array_equal(view(rank, index, dtype, count), 0.5)
        np.testing.assert_array_equal(view(rank, 3, np.uint16, 9), 0x3F00)


@pytest.mark.parametrize("beside", [True, False])
def test_an_average_marked_keep_is_left_with_the_hub(make_world: Any, beside: bool) -> None:
    world = make_world({"a": [0, 1]}, {"a"} if beside else set(), elements=700_000).start()
    world.round(0, {"0": 0.5, "1": 0.5}, keep=True)
    assert world.next(RoundDone) == RoundDone(0, 0)
    np.testing.assert_array_equal(world.transport.average().view(np.float32), 1.5)
    world.round(1, {"0": 0.5, "1": 0.5})
    assert world.transport.average() is None


def test_messages_pass_both_ways_in_order(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    sent = [Plan(window, 0, [[0, 4]]) for window in range(20)]
    for plan in sent:
        world.transport.send_rank(1, plan)
    world.transport.send_rank(1, Finish(RunResult("run", "cpu_sync", 2)))
    assert [world.ranks[1].plane.receive() for _ in range(20)] == sent
    assert isinstance(world.ranks[1].plane.receive(), Finish)


def test_a_rank_waits_for_its_relay_to_listen(make_world: Any) -> None:
    world = make_world({"a": [0]})
    late = threading.Timer(0.2, world.start_relay, ["a"])
    late.start()
    world.start(relays=False)
    assert world.relays["a"]


def test_a_rank_whose_relay_is_gone_says_so(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    world.transport.close()  # the relay loses its hub, and ends
    with pytest.raises(Transient, match="the hub is gone"):
        world.outcomes["a"].result(30)
    with pytest.raises(Transient, match="relay is gone") as caught:
        world.ranks[0].plane.receive()
    assert caught.value.code == "relay-lost"


def test_no_relay_at_all_is_a_fault_with_the_sockets_path(make_world: Any) -> None:
    world = make_world({"a": [0]})
    with pytest.raises(Transient, match=r"cannot reach this host's relay at .*a\.sock"):
        world.start(relays=False)


def test_dismissal_ends_a_round_that_waits(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}, elements=600_000).start()
    done = world.ranks[0].take_part()
    assert world.order(0, {"0": 0.5, "1": 0.5})  # rank 1 does not take part
    world.transport.send_rank(0, Dismiss("rank 1 has failed"))
    with pytest.raises(Broken, match="rank 1 has failed"):
        done.result(30)


def test_a_forked_child_does_not_keep_the_rank_alive(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    hold, release = os.pipe()
    child = os.fork()
    if child == 0:  # a DataLoader's worker that outlives its rank
        os.read(hold, 1)
        os._exit(0)
    try:
        sock = world.ranks[0].plane._link.sock
        sock.close()  # no shutdown: what the kernel does for a killed process
        assert world.next(RankLost) == RankLost(0, False)
    finally:
        os.write(release, b"!")
        os.waitpid(child, 0)
        os.close(hold)
        os.close(release)


def test_goodbye_and_death_are_told_apart(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    world.ranks[1].plane.close()
    assert world.next(RankLost) == RankLost(1, False)
    world.ranks[0].plane.send(Deposit(0, 0, 0))
    world.ranks[0].plane.send(Leaving())
    world.ranks[0].plane.close()
    assert world.next(RankLost) == RankLost(0, True)
    assert world.outcomes["a"].result(30) == 0


def test_a_relay_whose_ranks_all_died_exits_with_1(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}).start()
    for rank in world.ranks.values():
        rank.plane.close()
    assert world.outcomes["a"].result(30) == 1


def test_the_relay_joins_before_its_ranks(make_world: Any) -> None:
    world = make_world({"a": [0, 1]})
    world.start_relay("a")
    assert world.next(RelayJoined) == RelayJoined("a", [0, 1])


def test_a_script_that_holds_more_descriptors_than_select_can_count_takes_part(make_world: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1500:
        pytest.skip("this process may not open so many")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1500), hard))
    gc.collect()
    gc.disable()  # what tests before this one have left would let low descriptors go meanwhile
    held: list[int] = []
    try:
        while not held or held[-1] < 1100:
            held.append(os.open(os.devnull, os.O_RDONLY))
        world = make_world({"a": [0, 1]}).start()
        world.round(0, {"0": 0.5, "1": 0.5})
        assert world.ranks[0].plane.fileno() > 1024
        assert (world.ranks[0].floats == 1.5).all()
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        gc.enable()
