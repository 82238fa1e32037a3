"""The join: block: every key has its rule, every refusal its path."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_wire.config import Ssh
from flodl_wire.faults import Refused
from flodl_wire.join_block import JoinBlock, parse_join, ssh_target


def test_an_empty_block_says_nothing() -> None:
    assert parse_join(None) == parse_join({}) == JoinBlock()


def test_every_key_arrives() -> None:
    block = parse_join(
        {
            "controller": "[::1]:1400", "ssh": {"target": "c", "port": 2222, "user": "u", "identity_file": "/k"},
            "token": "0" * 32, "bin": "python train.py", "args": ["--model", "resnet"], "host": "box-1",
            "devices": [0, 1], "persist": True, "data_path": "/d", "gpu_ram_share": 0.5, "sig_probe": False,
        }
    )  # fmt: skip
    assert (block.ssh, block.args, block.persist) == (Ssh("c", 2222, "u", "/k"), ["--model", "resnet"], True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({"controler": "h"}, "join.controler"),
        ({"ssh": {"host": "h"}}, "join.ssh.host"),
        ({"ssh": {"port": 22}}, "join.ssh: it names no target"),
        ({"ssh": "u@h:99999"}, "99999 is no TCP port"),
        ({"ssh": "@h"}, "is no user's name"),
        ({"controller": "h:"}, "no port follows the colon"),
        ({"token": "ABC"}, "32 lowercase hex"),
        ({"bin": " "}, "join.bin: it is blank"),
        ({"args": "--lr 1"}, "join.args"),
        ({"devices": "0,0"}, "device 0 stands there twice"),
        ({"devices": "two"}, "an index must be a whole number"),
        ({"devices": "GPU-5f1c"}, "an index must be a whole number"),
        ({"host": "a b"}, "join.host"),
        ({"persist": "yes"}, "join.persist"),
        ({"gpu_ram_share": -1}, "join.gpu_ram_share"),
        ({"source": {"from": "file:///x"}}, "not available in this version"),
        ({"libtorch": "auto"}, "not available in this version"),
        ([], "join"),
    ],
)
def test_what_is_wrong_is_named_with_its_path(data: Any, said: str) -> None:
    with pytest.raises(Refused) as caught:
        parse_join(data)
    assert said in str(caught.value) and caught.value.fix


@pytest.mark.parametrize(
    ("text", "road"),
    [
        ("ctrl", Ssh("ctrl")),
        ("join@ctrl:2222", Ssh("ctrl", 2222, "join")),
        ("join@[::1]:2222", Ssh("::1", 2222, "join")),
        ("::1", Ssh("::1")),
    ],
)
def test_the_short_form_of_ssh_is_user_host_and_port(text: str, road: Ssh) -> None:
    assert ssh_target(text, "--ssh") == road
