"""What a checkpoint holds besides the model, on its way up and down; and rounds whose average a checkpoint gives."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from flodl_planes.coordinator.transport_events import StateWhole
from flodl_planes.plane.segment import Segment
from flodl_wire.plane_messages import Deposit, Round

WAIT = 30.0


def bytes_of(size: int) -> bytes:
    return np.arange(size, dtype=np.uint32).view(np.uint8)[:size].tobytes()


def segment(data: bytes) -> Segment:
    made = Segment.create("test", len(data))
    made.buffer[:] = data
    return made


@pytest.mark.parametrize("beside", [{"a"}, set()], ids=["shared", "sealed"])
def test_a_state_arrives_whole_while_rounds_go_on(make_world: Any, beside: set[str]) -> None:
    world = make_world({"a": [0], "b": [1]}, beside).start()
    data = bytes_of(700_001)
    world.round(0, {"0": 1.0})
    world.ranks[0].plane.send_state(1, segment(data), 1.0)
    world.round(1, {"0": 0.5, "1": 0.5})
    assert world.next(StateWhole) == StateWhole(0, 1)
    assert world.transport.states.take(0, 2) is None, "of another round"
    assert bytes(world.transport.states.take(0, 1) or b"") == data
    assert world.transport.states.take(0, 1) is None, "it was given away"


def test_a_newer_state_takes_the_place_of_one_that_is_still_coming(make_world: Any) -> None:
    world = make_world({"a": [0], "b": [1]}, {"b"}).start()
    world.round(0, {"0": 1.0})
    world.ranks[0].plane.send_state(1, segment(bytes_of(2_000_000)), 1.0)
    world.ranks[0].plane.send_state(2, segment(b"new"), 1.0)
    event = world.next(StateWhole)
    while event.round != 2:
        event = world.next(StateWhole)
    assert bytes(world.transport.states.take(0, 2) or b"") == b"new"


@pytest.mark.parametrize("beside", [{"a"}, set(), {"a", "b"}], ids=["mixed", "sealed", "shared"])
def test_a_given_round_puts_a_checkpoint_into_every_rank_and_its_state_behind_it(
    make_world: Any, beside: set[str]
) -> None:
    world = make_world({"a": [0, 1], "b": [2]}, beside).start()
    given = np.zeros(world.ranks[0].layout.total_bytes, np.uint8)
    given.view(np.float32)[:] = 7.5
    state = bytes_of(600_000)
    world.transport.restore(segment(state))
    working = [rank.take_part() for rank in world.ranks.values()]
    opened = Round(0, {"0": 1.0}, leader=0, alone=False, given=True, state=True)
    assert world.begin(opened, ["a", "b"], given)
    for rank, done in zip(world.ranks.values(), working, strict=True):
        assert done.result(WAIT).given
        assert set(rank.floats.tolist()) == {7.5}
        assert bytes(rank.plane.restored()) == state


def test_one_host_alone_can_be_given_a_checkpoint_too(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}, {"a"}).start()
    given = np.full(world.ranks[0].layout.total_bytes, 1, np.uint8)
    working = [rank.take_part() for rank in world.ranks.values()]
    assert world.begin(Round(0, {"0": 1.0}, leader=0, alone=False, given=True), ["a"], given)
    for rank, done in zip(world.ranks.values(), working, strict=True):
        done.result(WAIT)
        assert rank.live.array.tobytes() == given.tobytes()


def test_the_hub_of_the_same_box_can_save_an_average_that_nobody_was_asked_to_keep(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}, {"a"}).start()
    world.round(0, {"0": 1.0})
    world.ranks[1].floats[:] = 3.0
    world.round(1, {"0": 0.5, "1": 0.5})
    world.ranks[0].floats[:] = 99.0  # training goes on
    assert world.transport.average() is None
    assert set(world.transport.rescued(1).view(np.float32).tolist()) == {2.0}


def test_of_several_hosts_the_last_average_is_the_hubs(make_world: Any) -> None:
    world = make_world({"a": [0], "b": [1]}, {"a"}).start()
    world.round(0, {"0": 1.0})
    world.ranks[1].floats[:] = 3.0
    world.round(1, {"0": 0.5, "1": 0.5})
    assert set(world.transport.rescued(1).view(np.float32).tolist()) == {2.0}
    for rank in world.ranks.values():
        rank.plane.send(Deposit(2, 0, 0))
    assert world.order(2, {})
    assert set(world.transport.rescued(2).view(np.float32).tolist()) == {2.0}, "nobody moved: it stands"


def test_an_average_that_is_newer_than_the_word_on_it_is_not_saved(make_world: Any) -> None:
    """Else its samples would be done once more by the run that goes on."""
    for hosts in ({"a": [0], "b": [1]}, {"a": [0, 1]}):
        world = make_world(hosts, {"a"}).start()
        world.round(0, {"0": 1.0})
        world.round(1, {"0": 0.5, "1": 0.5})
        assert world.transport.rescued(0) is None
        assert world.transport.rescued(1) is not None


def test_an_average_that_is_not_whole_is_not_saved(make_world: Any) -> None:
    world = make_world({"a": [0, 1]}, {"a"}).start()
    world.round(0, {"0": 1.0})
    working = world.ranks[0].take_part()  # rank 1 does not take part
    assert world.order(1, {"0": 0.5, "1": 0.5})
    assert world.transport.rescued(1) is None
    assert not working.done()
    world.ranks[1].take_part().result(WAIT)


def test_what_travels_is_json_and_raw_bytes() -> None:
    from flodl_wire.messages import encode_message
    from flodl_wire.plane_messages import StatePart

    assert json.loads(encode_message(StatePart(b"\x00\xff", 3)))["data"] == "AP8="
