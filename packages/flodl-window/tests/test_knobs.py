from __future__ import annotations

from typing import Any

import pytest
from window_worlds import cluster

from flodl_window.knobs import CAPACITY, Knobs, resolve
from flodl_wire.config import parse_cluster
from flodl_wire.faults import Refused

TOKEN = "a" * 32


def knobs(
    *devices: object, mode: str = "cpu_cadence", fanout: bool = True, loopback: bool = False, **join: Any
) -> Knobs:
    return resolve(cluster(*devices, **join), mode, fanout=fanout, loopback=loopback)


def test_a_fan_out_waits_for_its_whole_roster_and_no_longer() -> None:
    made = knobs("cpu:2", "cpu:1")
    assert (made.quorum, made.target, made.join_s, made.cap_s) == (CAPACITY, CAPACITY, 300, 600)
    assert (made.start, made.admission, made.walk_ins) == ("auto", "salt", False)


def test_a_lower_quorum_still_closes_early_when_all_are_in() -> None:
    made = knobs("cpu:2", "cpu:2", min_rank_start=2)
    assert (made.quorum, made.target) == (2, CAPACITY)


def test_manual_and_discovery_have_no_target_of_their_own() -> None:
    assert knobs("cpu:2", start="manual").target is None
    assert knobs(discovery=True, min_rank_start=2, token="a" * 32, fanout=False).target is None


def test_the_cap_is_never_shorter_than_a_long_window() -> None:
    assert knobs("cpu:2", join_timeout=900).cap_s == 900


def test_asking_for_more_than_the_roster_gives_is_asking_for_walk_ins() -> None:
    assert knobs("cpu:2", target_ranks=4, token=TOKEN).walk_ins
    assert knobs("cpu:2", min_rank_start=3, token=TOKEN).walk_ins
    assert not knobs("cpu:2", min_rank_start=2).walk_ins


def test_a_bare_one_host_config_waits_for_a_walk_in() -> None:
    made = knobs("cpu:1", target_ranks=2, token=TOKEN)
    assert made.walk_ins and made.quorum == 2


def test_a_token_is_asked_of_everybody_even_on_loopback() -> None:
    assert knobs("cpu:2", token="0123456789abcdef" * 2, loopback=True).admission == "token"


def test_loopback_without_a_token_is_open_to_those_who_dial_in_themselves() -> None:
    assert knobs("cpu:2", fanout=False, loopback=True).admission == "open"
    assert knobs("cpu:2", target_ranks=4, loopback=True).admission == "open"
    assert knobs("cpu:2", loopback=True).admission == "salt"


def test_a_torch_world_may_have_one_rank() -> None:
    assert knobs("cpu:1", mode="torch").quorum == CAPACITY


@pytest.mark.parametrize(
    ("devices", "join", "key", "why"),
    [
        (["cpu:2"], {"min_rank_start": 1}, "min_rank_start", "nothing to average with"),
        (["cpu:1"], {}, "min_rank_start", "nothing to average with"),
        (["cpu:2"], {"join_timeout": 0}, "join_timeout", "no length of time"),
        (
            ["cpu:2"],
            {"join_timeout": 300, "max_join_timeout": 200},
            "max_join_timeout",
            "controller.join.join_timeout",
        ),
        (["cpu:2"], {"target_ranks": 1}, "target_ranks", "too few"),
        (
            ["cpu:4"],
            {"min_rank_start": 4, "target_ranks": 3},
            "target_ranks",
            "controller.join.min_rank_start, 4",
        ),
        (["cpu:4"], {"target_ranks": 3}, "target_ranks", "below the 4 ranks that the roster gives"),
        ([], {"discovery": True}, "discovery", "how many ranks"),
        (["cpu:2"], {"token": "A" * 32}, "token", "lowercase"),
        (["cpu:2"], {"token": "ab"}, "token", "32"),
        (["cpu:2"], {"token": "a" * 32, "open_admission": True}, "token", "open_admission"),
        (["cpu:2"], {"start": "manual", "target_ranks": 4}, "target_ranks", "manual"),
        (["cpu:2"], {"tunnel_only": True}, "tunnel_only", "discovery is off"),
    ],
)
def test_contradictions_are_refused_by_key(devices: list[str], join: dict[str, Any], key: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        knobs(*devices, **join)
    assert f"controller.join.{key}" in caught.value.what and why in caught.value.why and caught.value.fix


def test_tunnel_only_needs_a_mode_that_goes_through_tunnels() -> None:
    with pytest.raises(Refused) as caught:
        knobs(mode="nccl_cadence", discovery=True, tunnel_only=True, min_rank_start=2)
    assert "past any tunnel" in caught.value.why


def test_workers_that_dial_in_from_afar_must_prove_something() -> None:
    with pytest.raises(Refused) as caught:
        knobs("cpu:2", fanout=False)
    assert "token" in caught.value.what and "open_admission" in caught.value.fix


@pytest.mark.parametrize("devices", [(), ("cpu:2",)])
def test_who_waits_for_strangers_must_tell_them_from_others(devices: tuple[str, ...]) -> None:
    join: dict[str, Any] = {"discovery": True, "min_rank_start": 4}
    for fanout in (True, False):
        with pytest.raises(Refused) as caught:
            knobs(*devices, fanout=fanout, **join)
        assert "controller.join.token" in caught.value.what and "controller.join.discovery" in caught.value.why
        assert knobs(*devices, fanout=fanout, open_admission=True, **join).admission == "open"
        assert knobs(*devices, fanout=fanout, token=TOKEN, **join).admission == "token"


def test_a_roster_of_unknown_size_asks_for_nobody_else_until_it_is_known() -> None:
    made = knobs("all", "all", min_rank_start=3)
    assert made.admission == "salt" and made.walk_ins


def test_tunnels_to_other_boxes_end_the_open_loopback_door() -> None:
    workers = [{"host": "far", "local_devices": "cpu:2", "path": "/p", "tunnel": True}]
    of = parse_cluster({"controller": {"host": "10.0.0.1", "path": "/p"}, "workers": workers})
    assert resolve(of, "cpu_sync", fanout=True, loopback=True).admission == "salt"
