"""From the open window to the first batch: who is told what, and what is late."""

from __future__ import annotations

from window_worlds import Driven, cluster, failed, formed, hello

from flodl_window import events as ev
from flodl_wire.hub_messages import Form, Met, RankIn, RelayIn
from flodl_wire.join_messages import (
    Accept,
    Bye,
    HostFault,
    Reject,
    WorldFormed,
)


def test_everybody_is_told_of_the_world_when_it_forms() -> None:
    world = formed("cpu:2", "cpu:1")
    assert [place.rank for form in world.told(Form) for place in form.places] == [0, 1, 2]
    first, second = world.sent(WorldFormed)
    assert (first.envelope.world_size, first.envelope.num_workers, first.envelope.worker.ranks) == (3, 2, [0, 1])
    assert (second.envelope.worker.host, second.envelope.worker.index, second.envelope.worker.ranks) == (
        "node-b",
        1,
        [2],
    )
    assert first.command is not None and first.command.argv == ["python", "train.py", "--lr", "0.1"]
    assert first.relay is not None and first.relay.ranks == [0, 1] and first.relay.hub_socket == ""
    assert not first.envelope.salt, "ranks open no sealed channel"
    assert world.said[-1] == "world formed: 3 ranks on 2 hosts, mode cpu_cadence"


def test_a_host_of_this_box_finds_the_hub_by_its_socket() -> None:
    world = Driven(cluster("cpu:2"), here="node-a")
    world.hello(hello("node-a", 2))
    assert world.sent(WorldFormed)[0].relay.hub_socket == "/run/hub.sock"


def test_the_environment_of_a_host_is_the_clusters_overlaid_by_its_own() -> None:
    from flodl_wire.config import parse_cluster

    of = parse_cluster(
        {
            "controller": {"host": "c", "path": "/p"},
            "env": {"A": "cluster", "B": "cluster"},
            "gpu_ram_share": 0.5,
            "workers": [{"host": "node-a", "local_devices": "cpu:2", "path": "/p", "env": {"B": "its own é \n'$"}}],
        }
    )
    world = Driven(of)
    world.run.charter.gpu_ram_share = of.gpu_ram_share
    world.hello(hello("node-a", 2))
    letter = world.sent(WorldFormed)[0]
    assert letter.command.env == {"A": "cluster", "B": "its own é \n'$"}
    assert letter.envelope.worker.gpu_ram_share == 0.5


def test_a_walk_in_runs_its_own_program_and_follows_the_roster() -> None:
    world = Driven(cluster("cpu:1", target_ranks=2, token="a" * 32), args=["--lr", "0.1"])
    world.hello(hello("stranger", road="direct"))
    world.hello(hello("node-a"))
    letters = {letter.envelope.worker.host: letter for letter in world.sent(WorldFormed)}
    assert letters["stranger"].command is None and letters["stranger"].envelope.worker.ranks == [1]
    assert letters["node-a"].envelope.worker.ranks == [0] and letters["node-a"].command is not None
    assert [accept.args for accept in world.sent(Accept)] == [["--lr", "0.1"]] * 2
    assert all(letter.args == ["--lr", "0.1"] for letter in letters.values())


def test_only_who_had_no_salt_is_given_it() -> None:
    world = Driven(cluster(discovery=True, min_rank_start=2), fanout=False, loopback=True)
    world.do(ev.HelloReceived(1, hello("stranger"), "127.0.0.1", keyed=False))
    world.do(ev.HelloReceived(2, hello("knows-it"), "127.0.0.1"))
    assert [accept.salt_hex for accept in world.sent(Accept)] == [world.run.charter.salt_hex, None]


def test_a_refused_hello_costs_nobody_else_anything() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    world.hello(hello("node-a"))
    out = world.do(ev.HelloReceived(77, hello("node-a"), "10.0.0.66"))
    assert isinstance(out[0], ev.Send) and isinstance(out[0].message, Reject) and out[1] == ev.Shut(77)
    world.do(ev.LinkClosed(77))
    world.hello(hello("node-b"))
    assert world.run.phase.value == "forming"
    assert world.run.window.refusals.listed()[0]["code"] == "host-already-in"


def test_a_newcomer_after_the_formation_is_told_that_the_window_is_closed() -> None:
    world = formed("cpu:2")
    out = world.do(ev.HelloReceived(77, hello("late"), "10.0.0.66"))
    assert isinstance(out[0], ev.Send) and isinstance(out[0].message, Reject) and out[0].message.code == "window-closed"


def test_a_relay_that_does_not_come_is_named_with_its_box() -> None:
    world = formed("cpu:1", "cpu:1")
    world.hub(RelayIn("node-a"))
    world.at(59)
    assert world.run.phase.value == "forming"
    world.at(60)
    assert failed(world).startswith("host node-b: its relay has not dialled in within 60 s")


def test_ranks_that_never_get_ready_are_named_with_their_box() -> None:
    world = formed("cpu:1", "cpu:2")
    for host in ("node-a", "node-b"):
        world.hub(RelayIn(host))
    world.hub(RankIn(0))
    world.hub(RankIn(1))
    world.at(299)
    assert world.run.phase.value == "forming"
    world.at(300)
    assert failed(world).startswith("rank 2 on node-b not ready within 300 s")


def test_ranks_that_met_by_themselves_need_never_get_ready() -> None:
    world = formed("cpu:1", "cpu:1", mode="nccl_cadence")
    for host in ("node-a", "node-b"):
        world.hub(RelayIn(host))
    world.hub(Met())
    world.at(9000)
    assert world.run.phase.value == "forming"
    assert world.run.why == "the ranks have met, and drive torch.distributed themselves" == world.said[-1]


def test_loading_is_narrated() -> None:
    world = formed("cpu:2")
    world.hub(RelayIn("node-a"))
    world.hub(RankIn(1))
    assert world.said[-1] == "ranks loading: 1 of 2 ready …" and world.run.why == "1 of 2 ranks ready"
    world.hub(RankIn(0))
    assert world.said[-1] == "ranks loading: 2 of 2 ready"


def test_a_walk_in_that_is_told_to_end_before_the_world_forms_ends_nobody_else() -> None:
    of = cluster(discovery=True, min_rank_start=2, start="manual")
    world = Driven(of, fanout=False, loopback=True)
    world.hello(hello("one"))
    world.hello(hello("two"))
    world.says("two", HostFault("signalled", "the agent of two was told to end", "it got SIGTERM"))
    world.says("two", Bye())
    world.gone("two")
    world.at(5.0)
    assert world.run.phase.value == "waiting" and list(world.run.ledger.members) == ["one"]
    assert "the agent of two was told to end: it got SIGTERM" in world.said
    world.hello(hello("two"))
    assert world.run.phase.value == "staging"
