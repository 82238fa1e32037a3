"""Whatever the speeds, the deaths and the order of events: every sample of every epoch is merged once."""

import random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_wire.hub_messages import EpochDone, Finished, RankGone, Trained

WORLDS = [
    {"here": [0, 1]},
    {"here": [0, 1, 2, 3]},
    {"here": [0, 1], "there": [2]},
    {"a": [0], "b": [1], "c": [2]},
    {"a": [0, 1], "b": [2, 3], "c": [4]},
]
# in which a death is told of: by the launcher before the relay; and with something in between
ORDERS = [(False, False), (True, False), (False, True), (True, True)]


@settings(deadline=None, max_examples=300)
@given(
    st.sampled_from(WORLDS),
    st.integers(1, 120),
    st.integers(1, 17),
    st.integers(1, 3),
    st.sampled_from(["cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence"]),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_every_sample_is_merged_exactly_once(
    paper: Any,
    hosts: dict[str, list[int]],
    samples: int,
    batch: int,
    epochs: int,
    mode: str,
    evaluates: bool,
    progressive: bool,
    data: Any,
) -> None:
    speed = {rank: data.draw(st.sampled_from([1.0, 2.5, 10.0, 300.0])) for ranks in hosts.values() for rank in ranks}
    elche = {"progressive": progressive}
    world = paper(hosts, samples, batch, epochs, mode, evaluates, ms=speed.__getitem__, elche=elche).load()
    needed = 2 if mode.startswith("nccl") else 1  # a single survivor has nobody to average with there
    most = max(0, sum(map(len, hosts.values())) - needed)
    # Chance of its own: what hypothesis draws is mostly small, and most deaths would come before anything else has.
    chance = random.Random(data.draw(st.integers(0, 2**32)))
    wanted = chance.randint(0, most)
    moments = [chance.randrange(40) for _ in range(wanted)]
    steps, deaths, known, why = 0, 0, 0, "killed by signal 9"
    while not world.over:
        actions: list[tuple[Any, ...]] = [(world.deposit, rank) for rank in sorted(world.undone)]
        actions += [(world.applied, rank) for rank in sorted(world.to_apply)]
        actions += [(world.decide,)] if world.open is not None else []
        actions += [(world.hear,)] if world.half_told else []
        assert actions, f"nothing can happen any more: {world.said[-3:]}"
        if steps in moments and deaths < wanted and len(world.living()) > needed:
            actions = [(world.kill, rank, why, *order) for rank in world.living() for order in ORDERS]
            for host, ranks in hosts.items():
                alive = [rank for rank in ranks if rank in world.living()]
                if 0 < len(alive) < len(world.living()) and len(alive) <= wanted - deaths:
                    actions += [(world.cut, host), (world.cut, host, True)]
        act, *args = chance.choice(actions)
        steps += 1
        before, trained = len(world.living()), bool(world.told(Trained))
        if world.open is not None and act == world.kill and _last_of_host(world, args[0]):
            act, args = world.cut, [world.host_of[args[0]]]  # a relay without ranks ends itself: its host is lost
        act(*args)
        deaths += max(0, before - len(world.living()) - len(world.left))
        if not trained:  # the result is made then, and a death that is heard of later is none of training's
            known = len(world.dead) - sum(isinstance(word, RankGone) for word in world.half_told)
    everything = {epoch: list(range(samples)) for epoch in range(epochs)}
    assert {epoch: sorted(positions) for epoch, positions in world.merged.items()} == everything
    assert [row["merged"] for row in world.rows("epoch")] == [[[0, samples]]] * epochs
    assert [message.epoch for message in world.told(EpochDone)] == list(range(epochs))
    (finished,) = world.told(Finished)
    assert finished.result.samples == samples * epochs
    assert finished.result.degraded == (known > 0)
    if evaluates:
        assert finished.result.epochs[-1].eval == {"accuracy": 0.5}


def _last_of_host(world: Any, rank: int) -> bool:
    return [other for other in world.hosts[world.host_of[rank]] if other in world.living()] == [rank]
