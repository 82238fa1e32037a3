"""The join: block: every key has its rule, every refusal its path."""

from __future__ import annotations

from typing import Any

import pytest

from flodl_wire.config import Ssh
from flodl_wire.faults import Refused
from flodl_wire.join_block import JoinBlock, SourceBlock, data_source, parse_join, ssh_target
from flodl_wire.remote_path import RemotePath


def test_an_empty_block_says_nothing() -> None:
    assert parse_join(None) == parse_join({}) == JoinBlock()


def test_every_key_arrives() -> None:
    block = parse_join(
        {
            "controller": "[::1]:1400", "ssh": {"target": "c", "port": 2222, "user": "u", "identity_file": "/k"},
            "token": "0" * 32, "bin": "python train.py", "args": ["--model", "resnet"], "host": "box-1",
            "devices": [0, 1], "persist": True, "data_path": "/d", "gpu_ram_share": 0.5, "sig_probe": False,
            "libtorch": "auto", "data_source": "sshfs://u@h:2222:/data",
        }
    )  # fmt: skip
    assert (block.ssh, block.args, block.persist) == (Ssh("c", 2222, "u", "/k"), ["--model", "resnet"], True)


def test_a_source_stands_in_place_of_bin() -> None:
    block = parse_join({"source": {"from": "rsync://op@desk:/tree", "cwd": "sub", "build": "make", "bin": "t.py"}})
    assert block.source == SourceBlock("rsync://op@desk:/tree", "sub", "make", "t.py")


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
        ({"source": {"from": "/x"}}, "join.source.from: '/x': it has no scheme"),
        ({"source": {"frm": "file:///x"}}, "join.source.frm"),
        ({"source": {"bin": "x"}}, "it lacks the key from"),
        ({"source": "file:///x"}, "join.source"),
        ({"source": {"from": "file:///x"}, "bin": "t.py"}, "given or pulled, not both"),
        ({"libtorch": " "}, "join.libtorch: it is blank"),
        ({"data_source": "host:/data"}, "no scheme that says how to mount it"),
        ({"data_source": "sshfs://host/data"}, "it wants host, colon, absolute path"),
        ({"data_source": "sshfs://h:99999:/data"}, "99999 is no TCP port"),
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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("sshfs://h:/data", RemotePath("h", "/data")),
        ("sshfs://u@h:2222:/flodl//data/", RemotePath("h", "/flodl/data", "u", 2222)),
        ("sshfs://u@[fe80::1]:2222:/data", RemotePath("fe80::1", "/data", "u", 2222)),
    ],
)
def test_a_data_source_is_a_folder_on_another_box(text: str, place: RemotePath) -> None:
    found = data_source(text, "--data-source")
    assert found == place
    assert RemotePath("::1", "/d", "u", 22).login == "u@[::1]" and str(RemotePath("h", "/d", "u", 22)) == "u@h:22:/d"
