"""Walk-ins, rehearsals, models that differ, boxes that come twice."""

from __future__ import annotations

from typing import Any

from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.snapshot import snapshot
from flodl_wire.hub_messages import Ready
from flodl_wire.join_messages import (
    ECHO_BUDGET,
    MAX_ECHO,
    Accept,
    AskSchema,
    Bye,
    Echo,
    Echoed,
    Hello,
    Reject,
    Schema,
    WorldFormed,
)
from flodl_wire.plane_messages import TensorSpec

ONE, OTHER = "1" * 64, "2" * 64
OLD, NEW = "a" * 32, "b" * 32
SMALL = [TensorSpec("w", [2, 2], "F32", "param")]
LARGE = [TensorSpec("w", [2, 3], "F32", "param")]


def window(**join: Any) -> Driven:
    return Driven(cluster(discovery=True, token="a" * 32, min_rank_start=4, **join), fanout=False)


def answers(effects: list[ev.Effect], link: int) -> list[Any]:
    return [effect.message for effect in effects if isinstance(effect, ev.Send) and effect.link == link]


def knock(world: Driven, link: int, message: Hello, address: str = "10.0.0.66") -> list[Any]:
    return answers(world.do(ev.HelloReceived(link, message, address)), link)


# a run that has been published over


def test_a_stale_walk_in_is_refused_although_it_comes_first_and_binds_nobody() -> None:
    world = window()
    world.do(ev.RunsServed((OLD, NEW)))
    for hi in (hello("late", run_id=OLD), hello("late", run_id=OLD, rehearsal=True)):
        out = world.do(ev.HelloReceived(50, hi, "10.0.0.66"))
        (refused,) = answers(out, 50)
        assert isinstance(refused, Reject) and refused.code == "run-superseded" and ev.Shut(50) in out
        assert refused.why == "it holds run aaaaaaaa, and run bbbbbbbb has been published over it"
    for link, run in ((51, NEW), (52, "")):
        (answer,) = knock(world, link, hello(f"fresh{link}", run_id=run))
        assert isinstance(answer, Accept)


def test_a_publish_while_the_window_is_open_sends_its_stale_members_for_the_new_run() -> None:
    world = window(target_ranks=4)
    world.do(ev.RunsServed((OLD,)))
    world.hello(hello("tower", run_id=OLD))
    world.hello(hello("attic", run_id=OLD))
    world.hello(hello("plain"))
    links = dict(world.links)
    out = world.do(ev.RunsServed((OLD, NEW)))
    for host in ("tower", "attic"):
        (told,) = answers(out, links[host])
        assert isinstance(told, Reject) and told.code == "run-superseded" and ev.Shut(links[host]) in out
        assert told.what == f"cannot keep {host}" and told.why.endswith("run bbbbbbbb has been published over it")
    assert not answers(out, links["plain"]) and list(world.run.ledger.members) == ["plain"]
    assert [refusal["host"] for refusal in snapshot(world.run, world.now).refused] == ["tower", "attic"]
    assert not [effect for effect in world.do(ev.LinkClosed(links["tower"])) if isinstance(effect, ev.Say)]
    for host in ("tower", "attic", "third"):
        world.hello(hello(host, run_id=NEW))
    assert world.run.phase.value == "forming" and not world.run.window.refusals.listed()
    assert {entry.hello.run_id for entry in world.run.ledger.members.values()} == {NEW, ""}


def test_the_operators_start_never_trains_a_run_that_has_been_published_over() -> None:
    """It was fired while the coordinator was not there yet; what comes next would have formed the world."""
    world = Driven(cluster(discovery=True, token="a" * 32, min_rank_start=2, start="manual"), fanout=False, ready=False)
    world.do(ev.RunsServed((OLD,)))
    for host in ("tower", "attic"):
        world.hello(hello(host, run_id=OLD))
    world.do(ev.StartAsked(True))
    world.do(ev.RunsServed((OLD, NEW)))
    assert any("the start is withdrawn" in line for line in world.said)
    world.hub(Ready("/x"))
    assert world.run.phase.value == "waiting" and not world.sent(WorldFormed)
    (answer,) = (each for each in world.do(ev.StartAsked(True)) if isinstance(each, ev.AnswerStart))
    assert answer.status == 409


def test_one_whose_verdict_waits_for_a_schema_is_judged_by_what_is_published_then() -> None:
    world = window()
    world.do(ev.RunsServed((OLD,)))
    world.hello(hello("node-a", model_sig=ONE))
    assert isinstance(knock(world, 50, hello("node-b", model_sig=OTHER, run_id=OLD))[0], AskSchema)
    world.do(ev.RunsServed((OLD, NEW)))
    world.gone("node-a")  # else its model would differ
    before = len(world.effects)
    world.at(3.0)
    (refused,) = answers(world.effects[before:], 50)
    assert isinstance(refused, Reject) and refused.code == "run-superseded"


def test_a_publish_leaves_a_world_that_has_formed_alone() -> None:
    world = Driven(cluster(discovery=True, token="a" * 32, min_rank_start=2, target_ranks=2), fanout=False)
    for host in ("tower", "attic"):
        world.hello(hello(host, run_id=OLD))
    assert world.run.phase.value == "forming" and world.do(ev.RunsServed((OLD, NEW))) == []


# models that differ


def asked() -> Driven:
    world = window()
    world.hello(hello("node-a", model_sig=ONE))
    (question,) = knock(world, 50, hello("node-b", model_sig=OTHER))
    assert isinstance(question, AskSchema) and len(world.sent(AskSchema)) == 2, "both sides are asked"
    return world


def test_a_model_that_differs_is_refused_with_the_first_tensor_that_does() -> None:
    world = asked()
    assert not world.do(ev.LinkMessage(50, Schema(LARGE)))
    out = world.do(ev.LinkMessage(world.links["node-a"], Schema(SMALL)))
    (refused,) = answers(out, 50)
    assert isinstance(refused, Reject) and refused.code == "model-differs" and ev.Shut(50) in out
    assert refused.why.endswith(": w is F32 [2, 3] there and F32 [2, 2] at node-a")
    assert world.run.window.refusals.listed()[0]["why"] == refused.why
    assert isinstance(knock(world, 51, hello("node-c", model_sig=OTHER))[0], AskSchema)
    (refused,) = answers(world.do(ev.LinkMessage(51, Schema(LARGE))), 51)
    assert "F32 [2, 3]" in refused.why and len(world.sent(AskSchema)) == 3, "the member is asked once"


def test_a_schema_that_does_not_come_costs_a_few_seconds_and_the_name() -> None:
    world = asked()
    world.do(ev.LinkMessage(50, Schema(LARGE)))
    before = len(world.effects)
    world.at(3.0)
    (refused,) = answers(world.effects[before:], 50)
    assert isinstance(refused, Reject) and "w is" not in refused.why


def test_a_member_that_leaves_meanwhile_takes_its_model_with_it() -> None:
    world = asked()
    world.gone("node-a")
    before = len(world.effects)
    world.at(3.0)
    (accepted,) = answers(world.effects[before:], 50)
    assert isinstance(accepted, Accept) and list(world.run.ledger.members) == ["node-b"]
    assert world.run.host_of(50) == "node-b"


def test_a_newcomer_that_leaves_while_it_is_asked_is_forgotten() -> None:
    world = asked()
    world.do(ev.LinkClosed(50))
    world.at(4.0)
    assert not world.sent(Reject) and not world.run.window.refusals.listed()


def test_an_answer_nobody_waits_for_is_no_news() -> None:
    world = window()
    world.hello(hello("node-a", model_sig=ONE))
    assert not world.do(ev.LinkMessage(world.links["node-a"], Schema(SMALL)))
    assert not world.do(ev.LinkMessage(99, Schema(SMALL)))


# rehearsals


def test_a_rehearsal_is_told_what_a_hello_would_be_and_is_not_counted() -> None:
    world = window()
    world.hello(hello("node-a", 2))
    (accept,) = knock(world, 50, hello("node-b", 2, rehearsal=True, model_sig=ONE))
    assert isinstance(accept, Accept) and accept.ranks == [2, 3] and accept.salt_hex is None
    assert world.run.ledger.joined == 2 and world.run.phase.value == "waiting"
    world.hello(hello("node-c", model_sig=OTHER))
    assert list(world.run.ledger.members) == ["node-a", "node-c"], "it has seeded nothing"


def test_a_refused_rehearsal_leaves_no_trace() -> None:
    world = window()
    world.hello(hello("node-a", 2))
    (refused,) = knock(world, 50, hello("node-a", rehearsal=True))
    assert isinstance(refused, Reject) and refused.code == "host-already-in"
    assert not world.run.window.refusals.listed() and world.run.window.refusals.count == 0


def test_one_that_only_asks_for_the_arguments_is_worth_no_line() -> None:
    world = window()
    before = list(world.said)
    (accept,) = knock(world, 50, hello("node-a", rehearsal=True, quiet=True))
    (reject,) = knock(world, 51, hello("a b", rehearsal=True, quiet=True))
    assert isinstance(accept, Accept) and isinstance(reject, Reject) and world.said == before


def test_a_rehearsal_knows_its_place_in_the_roster() -> None:
    for spec, ranks in (("cpu:2", [0, 1]), ("all", [0, 1])):
        world = Driven(cluster(spec, "cpu:1"))
        world.hello(hello("node-b"))
        (accept,) = knock(world, 50, hello("node-a", 2, "cpu" if spec != "all" else "cuda", rehearsal=True))
        assert accept.ranks == ranks


def test_echoes_come_back_within_bounds() -> None:
    world = window()
    knock(world, 50, hello("node-b", rehearsal=True))
    (echoed,) = answers(world.do(ev.LinkMessage(50, Echo(7, "y" * 10, 3))), 50)
    assert echoed == Echoed(7, "xxx")
    for at in range(ECHO_BUDGET // MAX_ECHO):
        out = world.do(ev.LinkMessage(50, Echo(at, "", MAX_ECHO)))
    assert ev.Shut(50) in out, "it has asked for more than it may"
    knock(world, 51, hello("node-b", rehearsal=True))
    assert ev.Shut(51) in world.do(ev.LinkMessage(51, Echo(1, "", MAX_ECHO + 1)))
    knock(world, 52, hello("node-b", rehearsal=True))
    assert ev.Shut(52) in world.do(ev.LinkMessage(52, Echo(1, "", -1)))


def test_only_a_rehearsal_may_send_echoes() -> None:
    world = window()
    world.hello(hello("node-a"))
    assert not [sent for sent in world.says("node-a", Echo(1, "", 9)) if isinstance(sent, ev.Send)]


def test_a_rehearsal_ends_with_its_goodbye_its_link_its_time_or_the_run() -> None:
    world = window()
    for link, host in ((50, "b"), (51, "c"), (52, "d")):
        knock(world, link, hello(host, rehearsal=True))
    assert ev.Shut(50) in world.do(ev.LinkMessage(50, Bye()))
    world.do(ev.LinkClosed(51))
    assert world.run.reception.links == [52]
    before = len(world.effects)
    world.at(60)
    assert ev.Shut(52) in world.effects[before:] and not world.run.reception.links
    knock(world, 53, hello("e", rehearsal=True))
    before = len(world.effects)
    world.do(ev.Interrupted("SIGINT"))
    world.at(world.now + 0.25)
    assert ev.Shut(53) in world.effects[before:]


def test_rehearsals_do_not_crowd() -> None:
    world = window()
    for link in range(50, 58):
        assert isinstance(knock(world, link, hello(f"h{link}", rehearsal=True))[0], Accept)
    (refused,) = knock(world, 58, hello("h58", rehearsal=True))
    assert isinstance(refused, Reject) and refused.code == "rehearsals-busy"


def test_a_rehearsal_comes_too_late_like_everybody() -> None:
    world = Driven(cluster("cpu:2"))
    world.hello(hello("node-a", 2))
    (refused,) = knock(world, 50, hello("node-b", rehearsal=True))
    assert refused.code == "window-closed"


# boxes that come twice


def test_two_boxes_of_one_name_are_told_apart() -> None:
    world = window()
    world.hello(hello("vm", boot_id="one"))
    world.at(60)
    (refused,) = knock(world, 50, hello("vm", boot_id="two"))
    assert refused.code == "host-already-in" and "another box of that name" in refused.why and "--host" in refused.fix


def test_one_box_with_two_living_agents_is_told_so() -> None:
    world = window()
    world.hello(hello("vm", boot_id="one"))
    world.at(60)
    (refused,) = knock(world, 50, Hello("vm", "second", hello("vm").devices, boot_id="one"))
    assert "this very box is in already" in refused.why and "--host" in refused.fix


def silent(world: Driven, seconds: float) -> None:
    """Time in which no link says anything."""
    until = world.now + seconds
    while world.now < until:
        world.now += 0.25
        world.do(ev.Ticked())


def test_a_box_that_comes_back_takes_the_place_of_its_own_dead_entry() -> None:
    world = window()
    world.hello(hello("vm", boot_id="one"))
    world.hello(hello("other", boot_id="two"))
    old = world.links["vm"]
    silent(world, 3)
    out = world.do(ev.HelloReceived(50, Hello("vm", "second", hello("vm", 2).devices, boot_id="one"), "10.0.0.9"))
    assert isinstance(answers(out, 50)[0], Accept) and ev.Shut(old, lost=True) in out
    assert world.run.ledger.ranks() == {"other": [0], "vm": [1, 2]} and world.run.host_of(50) == "vm"
    world.do(ev.LinkClosed(old))
    assert world.run.ledger.joined == 3, "the end of the old link is no news"


def test_another_box_never_takes_the_place_of_a_silent_one() -> None:
    world = window()
    world.hello(hello("vm", boot_id="one"))
    silent(world, 3)
    assert knock(world, 50, hello("vm", boot_id="two"))[0].code == "host-already-in"


def test_a_dead_entry_stays_when_its_box_may_not_come_back() -> None:
    world = window()
    world.hello(hello("vm", boot_id="one", model_sig=ONE))
    world.hello(hello("other"))
    before = (dict(world.run.ledger.members), dict(world.run.ledger.seeds.bound), world.run.ledger.joined)
    silent(world, 3)
    (refused,) = knock(world, 50, Hello("vm", "second", [], boot_id="one"))
    assert refused.code == "no-devices"
    after = (dict(world.run.ledger.members), dict(world.run.ledger.seeds.bound), world.run.ledger.joined)
    assert after == before and list(world.run.ledger.members) == ["vm", "other"]


def test_five_restarts_of_one_agent_disturb_nobody() -> None:
    world = window()
    world.hello(hello("a"))
    for _ in range(5):
        world.hello(hello("b"))
        assert world.run.ledger.ranks() == {"a": [0], "b": [1]}
        world.gone("b")
        assert world.run.ledger.ranks() == {"a": [0]}


# walk-ins and the roster


def test_a_walk_in_may_not_call_itself_like_a_host_that_is_started_from_here() -> None:
    world = Driven(cluster("cpu:1", "cpu:1", target_ranks=3, token="a" * 32))
    (refused,) = knock(world, 50, hello("node-b", road="direct"))
    assert refused.code == "roster-host" and "--host" in refused.fix
    assert isinstance(knock(world, 51, hello("node-b"))[0], Accept)


def test_where_nobody_is_started_a_walk_in_may_be_the_rosters_host() -> None:
    world = Driven(cluster("cpu:1", "cpu:1", token="a" * 32), fanout=False)
    assert isinstance(knock(world, 50, hello("node-b", road="ssh"))[0], Accept)


def test_the_state_shows_every_road_and_both_ends_of_it() -> None:
    world = Driven(cluster("cpu:1", "cpu:1", target_ranks=3, token="a" * 32))
    world.hello(hello("node-a"))
    knock(world, 50, hello("vm", road="direct", own_address="172.17.0.2", dialled="desk:1337"), "10.0.0.7")
    state = snapshot(world.run, world.now)
    roads = [(m.host, m.road, m.address, m.own_address, m.dialled, m.walk_in) for m in state.members]
    assert roads == [
        ("node-a", "ssh", "10.0.0.9", "", "", False),
        ("vm", "direct", "10.0.0.7", "172.17.0.2", "desk:1337", True),
    ]
    assert state.missing == ["node-b"] and state.why.endswith("; closes in 300 s")


def test_a_tunnel_is_a_road_of_its_own() -> None:
    from flodl_wire.config import parse_cluster

    workers = [{"host": "far", "local_devices": "cpu:2", "path": "/p", "tunnel": True}]
    world = Driven(parse_cluster({"controller": {"host": "10.0.0.1", "path": "/p"}, "workers": workers}))
    world.hello(hello("far", 2), "127.0.0.1")
    assert snapshot(world.run, world.now).members[0].road == "tunnel"
