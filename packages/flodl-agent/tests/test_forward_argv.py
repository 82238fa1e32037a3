"""The forward's ssh command, and ssh's words turned into ours."""

from __future__ import annotations

import pytest

from flodl_agent.forward_argv import by_hand, ended, forward_argv, refused_behind, shown
from flodl_wire.address import Address
from flodl_wire.config import Ssh
from flodl_wire.faults import Refused

CTRL = Address("127.0.0.1", 1337)


def test_the_command_forwards_one_local_port_and_nothing_else() -> None:
    argv = forward_argv(Ssh("ctrl", 2222, "join", "/k", ["ProxyJump=bastion"]), 40001, CTRL)
    assert argv[:3] == ["ssh", "-N", "-T"] and argv[-4:] == ["-L", "127.0.0.1:40001:127.0.0.1:1337", "--", "ctrl"]
    options = [argv[index + 1] for index, word in enumerate(argv) if word == "-o"]
    assert options[0] == "ProxyJump=bastion", "ssh takes the first of two"
    assert {"BatchMode=yes", "ExitOnForwardFailure=yes", "ServerAliveInterval=30", "ControlPath=none"} <= {*options}
    assert argv[argv.index("-p") + 1] == "2222" and argv[argv.index("-l") + 1] == "join"
    assert argv[argv.index("-i") + 1] == "/k" and "IdentitiesOnly=yes" in options


def test_what_is_not_given_is_left_to_ssh() -> None:
    argv = forward_argv(Ssh("ctrl"), 40001, Address("::1", 1337))
    assert not {"-p", "-l", "-i"} & {*argv} and "127.0.0.1:40001:[::1]:1337" in argv


def test_a_road_is_shown_as_it_would_be_typed() -> None:
    assert shown(Ssh("ctrl", 2222, "join")) == "join@ctrl:2222" and shown(Ssh("::1", 22)) == "[::1]:22"
    assert by_hand(Ssh("ctrl", 2222, "join", "/a key")) == "ssh -v -N -p 2222 -i '/a key' join@ctrl"


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("ssh: connect to host h port 22: Connection refused", "refused", "nothing listens on that port"),
        ("ssh: connect to host h port 22: Connection timed out", "timeout", "packets are dropped"),
        ("ssh: connect to host h port 22: No route to host", "route", "no route leads"),
        ("ssh: connect to host h port 22: Network is unreachable", "route", "no route leads"),
        ("ssh: Could not resolve hostname h: Name or service not known", "name", "its name has no address"),
        ("join@h: Permission denied (publickey).", "ssh-denied", "ssh says: join@h: Permission denied (publickey)."),
        ("Load key \"/k\": bad permissions", "open-key-file", "others may read it"),
        ("kex_exchange_identification: read: reset", "ssh-ended", "ssh says: kex_exchange"),
    ],
)  # fmt: skip
def test_each_way_not_to_get_through_has_its_own_sentence(line: str, code: str, said: str) -> None:
    fault = ended(Ssh("h", user="join", identity_file="/k"), 255, ["Welcome!", line])
    assert fault.code == code and said in str(fault) and fault.fix
    assert isinstance(fault, Refused) == (code == "open-key-file"), "a flaw of this box, or of the road"


def test_a_changed_host_key_comes_with_the_line_that_forgets_the_old_one() -> None:
    words = [
        "@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @",
        "Offending ECDSA key in /home/me/.ssh/known_hosts:7",
        "Host key verification failed.",
    ]
    fault = ended(Ssh("h", 2222), 255, words)
    assert not isinstance(fault, Refused) and fault.code == "host-key-changed", "it may be mended over there"
    assert fault.fix.endswith("ssh-keygen -f /home/me/.ssh/known_hosts -R '[h]:2222'")
    assert ended(Ssh("h"), 255, words[:1]).fix.endswith("ssh-keygen -R h")


@pytest.mark.parametrize(
    ("line", "code", "said"),
    [
        ("channel 2: open failed: administratively prohibited: open failed", "forward-forbidden", "is forbidden there"),
        ("channel 2: open failed: connect failed: Connection refused", "refused", "nothing listens at"),
        ("channel 2: open failed: connect failed: Connection timed out", "timeout", "does not answer"),
        ("channel 2: open failed: connect failed: No route to host", "route", "no route leads"),
        ("channel 2: open failed: connect failed: Name or service not known", "name", "has no address"),
        ("", "closed-early", "closes at once"),
    ],
)
def test_what_happens_behind_the_forward_is_told_as_seen_from_there(line: str, code: str, said: str) -> None:
    fault = refused_behind(Ssh("h", user="join"), CTRL, [line])
    assert fault.code == code and said in str(fault) and "through join@h" in str(fault)


def test_a_forbidden_forward_names_the_options_that_allow_it() -> None:
    fault = refused_behind(Ssh("h"), CTRL, ["channel 2: open failed: administratively prohibited: open failed"])
    assert "AllowTcpForwarding yes" in fault.fix and 'permitopen="127.0.0.1:1337"' in fault.fix
