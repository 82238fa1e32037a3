"""What ssh's words mean for a door, on words that real doors have said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flodl_cli.join_config import door_test
from flodl_cli.join_config.door_test import Door, Probe, Said
from flodl_cli.join_config.farm import Controller, Farm

FARM = Farm(
    label="lab", root="/p", controller=Controller("me", "desk", 2222), door="b", token="", public_key="",
    served="/home/me/.flodl/run", data="/flodl/data",
)  # fmt: skip
REFUSED = "channel 0: open failed: connect failed: Connection refused\nstdio forwarding failed\n"
PROHIBITED = "channel 0: open failed: administratively prohibited: open failed\nstdio forwarding failed\n"
NO_SHELL = "This account is currently not available.\n"


def probe(name: str, door: str = "b") -> Probe:
    made = Door(replace(FARM, door=door), "/key", "/tmp/scratch/known", "/tmp/s", "desk", 2222, ["tree", "fetch"])
    return next(each for each in door_test.probes(made, 4000) if each.name == name)


@pytest.mark.parametrize(
    ("name", "said", "state"),
    [
        ("forward", Said(255, "", REFUSED), "held"),
        ("forward", Said(0, "HTTP/1.1 200 OK\r\n"), "held"),
        ("forward", Said(255, "", PROHIBITED), "SHUT"),
        ("forward", Said(255, "", "Connection to desk closed by remote host.\n"), "SHUT"),
        ("shell", Said(0, "flodl-42-shell\n/home/me\n"), "OPEN"),
        ("shell", Said(1, NO_SHELL), "held"),
        ("shell", Said(0, "echo flodl-$((40+2))-shell; pwd"), "held"),
        ("terminal", Said(0, "motd\nme@desk:~$ echo flodl\nflodl-42-shell\n"), "OPEN"),
        ("terminal", Said(255, "", "PTY allocation request failed on channel 0\n"), "held"),
        ("another port", Said(255, "", PROHIBITED), "held"),
        ("another port", Said(255, "SSH-2.0-OpenSSH_9.2p1\n"), "OPEN"),
        ("another port", Said(255, "", REFUSED), "OPEN"),
        ("another port", Said(None, "SSH-2.0-OpenSSH_9.2p1\n"), "OPEN"),
        ("another port", Said(None), "note"),
        ("listening", Said(255, "", "Error: remote port forwarding failed for listen port 0\n"), "held"),
        ("listening", Said(None, "", "Allocated port 41234 for remote forward to 127.0.0.1:9\n"), "OPEN"),
        ("listening", Said(None), "note"),
        ("unix socket", Said(0, "flodl-reached"), "OPEN"),
        ("unix socket", Said(0, "", "channel 1: open failed: connect failed: open failed\n"), "held"),
        ("write by rsync", Said(1, "", "rrsync error: sending to read-only server is not allowed\n"), "held"),
        ("write by rsync", Said(0, "known\n"), "OPEN"),
        ("write by rsync", Said(1, "", "rrsync error: Another instance of rrsync is already accessing"), "OPEN"),
        ("write by sftp", Said(255, "", "Received message too long 1416128883\n"), "held"),
        ("write by sftp", Said(0), "OPEN"),
        ("tree", Said(0, "drwxr-xr-x  4,096 2026/11/30 01:00:00 tree\n"), "held"),
        ("tree", Said(0, "drwxr-xr-x  4,096 2026/11/30 01:00:00 .\n"), "SHUT"),
        ("tree", Said(0, "drwxr-xr-x  4,096 2026/11/30 01:00:00 etc\n"), "OPEN"),
        ("tree", Said(1, "", "rrsync error: Restricted directory does not exist!\n"), "SHUT"),
        ("above the tree", Said(1, "", "rrsync error: do not use .. in any path!\n"), "held"),
        ("above the tree", Said(0, "drwx------  4,096 2026/11/30 01:00:00 .ssh\n"), "OPEN"),
    ],
)
def test_each_probe_knows_a_door_that_holds_from_one_that_does_not(name: str, said: Said, state: str) -> None:
    assert probe(name).judge(said).state == state


@pytest.mark.parametrize(
    ("err", "code"),
    [
        ("me@desk: Permission denied (publickey).\n", "denied"),
        ("ssh: connect to host desk port 2222: Connection refused\n", "unreachable"),
        ("ssh: Could not resolve hostname desk: Name or service not known\n", "unreachable"),
        ("Connection closed by 10.0.0.1 port 2222\n", "unreachable"),
        ("Host key verification failed.\n", "host-key"),
    ],
)
def test_a_key_that_gets_nowhere_is_said_once(err: str, code: str) -> None:
    found = door_test.let_in(Said(255, "", err), FARM)
    assert found is not None and (found.state, found.code) == ("SHUT", code) and found.fix


def test_a_forward_that_nobody_waits_behind_is_no_closed_door() -> None:
    assert door_test.let_in(Said(255, "", REFUSED), FARM) is None
    assert door_test.let_in(Said(255, "", PROHIBITED), FARM) is None


@pytest.mark.parametrize("door", ["a", "b", "nologin"])
def test_nothing_of_the_user_s_own_ssh_takes_part(door: str) -> None:
    made = Door(replace(FARM, door=door), "/a key", "/tmp/scratch/known", "/tmp/s", "fe80::1", 2222)
    for each in door_test.probes(made, 4000):
        line = " ".join(each.argv)
        for option in ("-F none", "IdentityAgent=none", "ControlPath=none", "BatchMode=yes", "IdentitiesOnly=yes"):
            assert option in line, line


def test_the_data_s_door_is_read_and_told_how_far_it_reaches() -> None:
    assert probe("data", "a").judge(Said(0, "one\n")).state == "held"
    assert probe("data", "a").judge(Said(1, "", 'Can\'t ls: "/flodl/data" not found\n')).state == "SHUT"
    assert probe("beyond the data", "a").judge(Said(0, "/etc/passwd\n")).state == "note"
    assert probe("beyond the data", "a").judge(Said(1)).state == "held"
