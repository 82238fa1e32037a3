"""Flags over the block: who wins, and what cannot be meant."""

from __future__ import annotations

import pytest

from flodl_agent.cli_join import parser, secret
from flodl_agent.join_recipe import Recipe, settle
from flodl_wire.address import Address
from flodl_wire.config import Ssh
from flodl_wire.devices import CpuDevices, GpuDevices
from flodl_wire.faults import Refused
from flodl_wire.join_block import parse_join


def recipe(*words: str, tail: list[str] | None = None, **block: object) -> Recipe:
    return settle(parser().parse_args(list(words)), tail, parse_join(block), "this-box", "/p")


def test_a_token_s_file_that_cannot_be_read_is_named_with_what_would_do() -> None:
    with pytest.raises(Refused) as caught:
        secret("/nowhere/token")
    assert caught.value.what == "cannot read --token @/nowhere/token" and "you may read" in caught.value.fix


@pytest.mark.parametrize(
    ("words", "block", "ssh"),
    [
        ((), {"ssh": {"target": "ctrl", "port": 2222}}, Ssh("ctrl", 2222)),
        ((), {"ssh": "join@ctrl:2222"}, Ssh("ctrl", 2222, "join")),
        (("--ssh", "other"), {"ssh": "join@ctrl:2222"}, Ssh("other")),
        (("--ssh", "me@other:23", "--identity", "/mine"), {}, Ssh("other", 23, "me", "/mine")),
        (("--identity", "/mine"), {"ssh": "ctrl"}, Ssh("ctrl", identity_file="/mine")),
    ],
)
def test_the_short_form_replaces_where_to_go_and_keeps_how(words: tuple[str, ...], block: dict, ssh: Ssh) -> None:  # type: ignore[type-arg]
    made = recipe(*words, **{"bin": "t.py", **block})
    assert made.ssh == ssh and made.controller == Address("127.0.0.1", 1337) and made.road == "ssh"


def test_key_file_and_options_of_the_block_outlive_a_typed_target() -> None:
    block = {"target": "ctrl", "port": 2222, "user": "join", "identity_file": "/etc/key", "options": ["ProxyJump=b"]}
    made = recipe("10.0.0.9", "--ssh", "other", bin="t.py", ssh=block)
    assert made.ssh == Ssh("other", None, None, "/etc/key", ["ProxyJump=b"])
    assert made.controller == Address("10.0.0.9", 1337), "as seen from there"


def test_a_tail_replaces_the_arguments_an_empty_one_too_and_none_leaves_them_to_the_controller() -> None:
    assert recipe("h", bin="python t.py", args=["a"]).args == ["a"]
    assert recipe("h", tail=[], bin="t.py", args=["a"]).args == []
    assert recipe("h", tail=["b"], bin="t.py", args=["a"]).args == ["b"]
    assert recipe("h", bin="t.py").args is None
    own = recipe("h", bin="python -u t.py --lr 1")
    assert (own.program, own.args, own.words.script) == (["python", "-u", "t.py"], ["--lr", "1"], "t.py")


def test_what_nobody_says_has_its_default() -> None:
    made = recipe("h", bin="t.py")
    assert (made.host, made.devices, made.persist, made.sig_probe) == ("this-box", GpuDevices(None), False, True)
    assert (made.ssh, made.token, made.data_path, made.gpu_ram_share) == (None, None, None, None)


def test_persist_can_only_be_turned_on_and_the_probe_only_off() -> None:
    assert recipe("h", "--persist", bin="t.py").persist and recipe("h", bin="t.py", persist=True).persist
    assert not recipe("h", "--no-sig-probe", bin="t.py").sig_probe
    assert not recipe("h", bin="t.py", sig_probe=False).sig_probe


def test_flags_win_over_keys() -> None:
    block = {"controller": "a:1", "bin": "a.py", "host": "a", "devices": "cpu:1", "gpu_ram_share": 0.1}
    made = recipe("b:2", "--bin", "b.py", "--host", "b", "--devices", "cpu:2", "--gpu-ram-share", "0", **block)
    assert (made.controller, made.program, made.host) == (Address("b", 2), ["b.py"], "b")
    assert (made.devices, made.gpu_ram_share) == (CpuDevices(2), 0.0)


def test_a_wrong_token_is_never_repeated_in_the_refusal() -> None:
    with pytest.raises(Refused) as caught:
        recipe("h", "--token", "not-quite-secret", bin="t.py")
    assert "not-quite-secret" not in caught.value.render() and "it has 16 characters" in str(caught.value)
