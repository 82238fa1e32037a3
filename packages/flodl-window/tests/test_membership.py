"""Whatever order hellos, closes, starts, schemas and ticks come in: ranks are contiguous and nobody is in twice."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.phases import Phase
from flodl_window.snapshot import snapshot
from flodl_wire.join_messages import Accept, Bye, Reject, Schema, WorldFormed
from flodl_wire.plane_messages import TensorSpec

names = st.sampled_from(["node-a", "node-b", "vm", "cloud", "-bad"])
boots = st.sampled_from(["", "one", "two"])
models = st.sampled_from(["", "1" * 64, "2" * 64])
devices = st.integers(0, 3)
nth = st.integers(0, 9)

acts = st.one_of(
    st.tuples(st.just("hello"), names, devices, boots, models, st.booleans(), st.sampled_from(["", "direct"])),
    st.tuples(st.just("close"), nth),
    st.tuples(st.just("bye"), nth),
    st.tuples(st.just("schema"), nth),
    st.tuples(st.just("hear"), nth),
    st.tuples(st.just("start"), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.1, 20.0)),
)
JOINS: list[dict[str, Any]] = [
    {"discovery": True, "min_rank_start": 3},
    {"discovery": True, "min_rank_start": 3, "start": "manual"},
    {"discovery": True, "min_rank_start": 2, "start": "hybrid", "target_ranks": 5},
    {"discovery": True, "min_rank_start": 9, "max_join_timeout": 300},
]


@settings(max_examples=250, deadline=None)
@given(st.lists(acts, max_size=30), st.sampled_from(JOINS), st.booleans())
def test_ranks_stay_contiguous_and_nobody_is_in_twice(story: list[Any], join: dict[str, Any], rostered: bool) -> None:
    roster = ("cpu:1", "cpu:2") if rostered else ()
    world = Driven(cluster(*roster, token="a" * 32, **join), fanout=rostered)
    numbers = itertools.count(1)
    open_links: list[int] = []
    answered: dict[int, list[Any]] = {}
    for act in story:
        effects = play(world, act, numbers, open_links)
        for effect in effects:
            if isinstance(effect, ev.Send):
                answered.setdefault(effect.link, []).append(effect.message)
            if isinstance(effect, ev.Shut) and effect.link in open_links:
                open_links.remove(effect.link)
                world.do(ev.LinkClosed(effect.link))
        check(world, open_links)
    for link, messages in answered.items():
        verdicts = [message for message in messages if isinstance(message, (Accept, Reject))]
        assert len(verdicts) <= 1, f"link {link} was answered twice"
        letters = [message for message in messages if isinstance(message, WorldFormed)]
        assert not letters or isinstance(verdicts[0], Accept)


def play(world: Driven, act: Any, numbers: Any, open_links: list[int]) -> list[ev.Effect]:
    verb = act[0]
    if verb == "hello":
        _, name, count, boot, model, rehearsal, road = act
        link = next(numbers)
        open_links.append(link)
        message = hello(name, count, boot_id=boot, model_sig=model, rehearsal=rehearsal, road=road)
        message.agent = f"agent-{link}"
        return world.do(ev.HelloReceived(link, message, "10.0.0.9"))
    if verb == "start":
        return world.do(ev.StartAsked(act[1]))
    if verb == "wait":
        world.now += act[1]
        return world.do(ev.Ticked())
    if not open_links:
        return []
    link = open_links[act[1] % len(open_links)]
    if verb == "close":
        open_links.remove(link)
        return world.do(ev.LinkClosed(link))
    if verb == "hear":
        world.run.hear(link, world.now)
        return []
    said = Bye() if verb == "bye" else Schema([TensorSpec("w", [link], "F32", "param")])
    return world.do(ev.LinkMessage(link, said))


def check(world: Driven, open_links: list[int]) -> None:
    run = world.run
    ledger = run.ledger
    ranks = [rank for owned in ledger.ranks().values() for rank in owned]
    assert ranks == list(range(ledger.joined)), "contiguous, each once, in rank order"
    assert sum(len(entry.devices) for entry in ledger.members.values()) == ledger.joined
    assert all(name == entry.host for name, entry in ledger.members.items())
    links = [entry.link for entry in ledger.members.values()]
    assert len(set(links)) == len(links)
    if run.phase.window_open:
        assert set(links) <= set(open_links), "a member without a link is a ghost"
        assert not run.window.armed or run.phase is Phase.STAGING
        models_in = {entry.hello.model_sig for entry in ledger.members.values() if entry.hello.model_sig}
        assert len(models_in) <= 1
    state = snapshot(run, world.now)
    assert state.joined_ranks == sum(len(member.ranks) for member in state.members)
