"""Interfaces, names, the road, clocks and ports: verdicts by values, then a road on real sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_probe.checks import network
from flodl_probe.facts import Facts, Interface, PortUse, Road
from flodl_probe.finding import Finding, ok
from flodl_probe.listener import Listener
from flodl_probe.question import Question
from flodl_probe.reading import interfaces, road

ETH = Interface("eth0", True, 1500, ["10.0.0.2/24"])
DATA = Interface("ib0", True, 4096, ["10.1.0.2/24"])
LO = Interface("lo", True, 65536, ["127.0.0.1/8"])


def asked(ifname: str | None = "eth0", **more: Any) -> Question:
    return Question(role="worker", several=True, nccl_socket_ifname=ifname, controller="desk", **more)


def box(question: Question, *here: Interface, **way: Any) -> Facts:
    road = Road("desk:1337", **{"answer": "probe", "interface": "eth0", "resolved": ["10.0.0.1"], **way})
    return Facts(question, "tower", interfaces=list(here or (ETH, LO)), road=road)


def worst(found: list[Finding]) -> Finding:
    return max(found or [ok("none", "")], key=lambda one: ("ok", "warning", "error").index(one.level))


def test_the_interface_that_leads_to_the_controller_is_green() -> None:
    assert worst(network.check_interface(box(asked()))).level == "ok"
    assert worst(network.check_interface(box(asked("=eth0")))).level == "ok"


@pytest.mark.parametrize(
    ("ifname", "level", "words"),
    [
        ("eno1", "error", "this host has eth0, ib0, lo"),
        ("ib0", "warning", "the way to the controller is eth0"),
        ("lo", "error", "no other host"),
        ("^docker", "ok", ""),
    ],
)
def test_what_nccl_socket_ifname_may_be(ifname: str, level: str, words: str) -> None:
    found = worst(network.check_interface(box(asked(ifname), ETH, DATA, LO)))
    assert found.level == level and words in found.sentence()


def test_a_wrong_interface_comes_with_the_line_to_write() -> None:
    assert worst(network.check_interface(box(asked("eno1")))).fix == "nccl_socket_ifname: eth0"


def test_an_interface_that_is_down_is_not_there() -> None:
    down = Interface("eth1", False, 1500, [])
    assert "(it is down)" in worst(network.check_interface(box(asked("eth1"), ETH, down))).what


def test_a_list_is_compared_by_beginnings_as_nccl_does() -> None:
    many = [Interface("eth1", True, 1500, ["10.0.0.2/24"]), Interface("eth10", True, 1500, ["10.9.0.2/24"])]
    found = worst(network.check_interface(box(asked("eth1,ib0"), *many, DATA)))
    assert (found.level, found.what, found.fix) == (
        "warning",
        "eth1 means eth1 and eth10",
        "nccl_socket_ifname: =eth1,ib0",
    )


def test_two_cards_in_one_subnet_are_named() -> None:
    twin = Interface("eth1", True, 1500, ["10.0.0.3/24"])
    found = worst(network.check_interface(box(asked(), ETH, twin)))
    assert (found.level, found.what) == ("warning", "eth0 and eth1 are both in 10.0.0.0/24")


def test_without_a_setting_the_right_one_is_proposed() -> None:
    found = network.check_interface(box(asked(None)))
    assert "nccl_socket_ifname: eth0" in found[0].what


def test_a_controller_that_is_loopback_from_here_is_an_error() -> None:
    found = worst(network.check_names(box(asked(), resolved=["127.0.1.1"])))
    assert found.level == "error" and "dial itself" in found.why
    assert worst(network.check_names(box(asked(local=True), resolved=["127.0.0.1"]))).level != "error"


def test_an_own_name_on_loopback_matters_only_where_nothing_else_says_the_interface() -> None:
    debian = box(asked(None))
    debian.own_addresses = ["127.0.1.1"]
    assert worst(network.check_names(debian)).level == "warning"
    debian.asked = asked("eth0")
    assert worst(network.check_names(debian)).level == "ok"
    unknown = box(asked(None))
    assert "does not resolve" in worst(network.check_names(unknown)).what


@pytest.mark.parametrize(
    ("answer", "nonce", "level"),
    [
        ("probe", "n", "ok"),
        ("window", None, "ok"),
        ("refused", None, "ok"),  # before a run, asked from elsewhere
        ("refused", "n", "error"),  # our listener is there
        ("timeout", None, "error"),
        ("route", None, "error"),
        ("name", None, "error"),
        ("other", "n", "error"),
        ("silent", "n", "error"),
        ("failed", "n", "error"),
    ],
)
def test_every_end_of_the_road_has_its_verdict(answer: str, nonce: str | None, level: str) -> None:
    found = worst(network.check_road(box(asked(nonce=nonce), answer=answer)))
    assert found.level == level and (level == "ok" or found.fix)


def test_a_road_that_loses_large_packets_is_no_road() -> None:
    assert "large packets" in worst(network.check_road(box(asked(nonce="n"), bulk=False))).what


@pytest.mark.parametrize(
    ("offset", "error", "level"), [(0.1, 0.0, "ok"), (60.0, 0.1, "warning"), (-60.0, 0.1, "warning"), (3.0, 2.0, "ok")]
)
def test_a_clock_is_wrong_when_it_surely_is(offset: float, error: float, level: str) -> None:
    assert worst(network.check_clock(box(asked(), clock_offset=offset, clock_error=error))).level == level


def test_the_mtu_of_a_bad_tunnel_is_said() -> None:
    assert worst(network.check_mtu(box(asked(), Interface("eth0", True, 576, [])))).level == "warning"
    assert worst(network.check_mtu(box(asked(), ETH))).level == "ok"


def test_a_taken_port_is_an_error_a_taken_dashboard_a_warning_and_a_run_is_fine() -> None:
    ports = [PortUse(1337, "nc (pid 7)"), PortUse(3000, "grafana (pid 8)")]
    assert [found.level for found in network.check_ports(Facts(ports=ports))] == ["error", "warning"]
    assert network.check_ports(Facts(ports=[PortUse(1337, "python (pid 7)", flodl=True)])) == []
    assert network.check_ports(Facts(ports=[PortUse(1337)]))[0].level == "ok"


def test_the_kernel_s_table_of_listeners_is_read() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue\n"
        "   0: 0100007F:0539 00000000:0000 0A 00000000:00000000\n"
        "   1: 0100007F:1F90 0100007F:0539 01 00000000:00000000\n"
        "   2: 00000000000000000000000000000000:0BB8 00000000000000000000000000000000:0000 0A\n"
    )
    assert interfaces.listening(table) == {1337, 3000}


@given(st.text())
def test_no_table_upsets_the_reader(text: str) -> None:
    interfaces.listening(text)
    interfaces.with_prefix(text, text)


def test_netmasks_become_prefixes() -> None:
    assert interfaces.with_prefix("10.0.0.1", "255.255.240.0") == "10.0.0.1/20"
    assert interfaces.with_prefix("fe80::1%eth0", "ffff:ffff:ffff:ffff::") == "fe80::1/64"


# the road, walked


@pytest.fixture
def door() -> Iterator[Listener]:
    with Listener("127.0.0.1", 0, "abc") as listener:
        yield listener


def walk(port: int, nonce: str | None = "abc", host: str = "127.0.0.1", patience: float = 5.0) -> Road:
    found = road.walk(Question(controller=host, port=port, nonce=nonce), [LO], patience)
    assert found is not None
    return found


def test_our_own_listener_is_known_by_its_nonce_tells_its_clock_and_takes_a_lot(door: Listener) -> None:
    seen = walk(door.port)
    assert (seen.answer, seen.bulk, seen.interface, seen.local_address) == ("probe", True, "lo", "127.0.0.1")
    assert seen.clock_offset is not None and abs(seen.clock_offset) < 1
    assert walk(door.port, "xyz").answer == "other"


def test_a_listener_leaves_its_port(free_port: int) -> None:
    for _ in range(2):
        with Listener("127.0.0.1", free_port, "n"):
            assert walk(free_port, "n").answer == "probe"
    assert walk(free_port).answer == "refused"


def serve(answer: bytes) -> int:
    """A program on a port that says `answer` to the first who comes."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener:
            link, _ = listener.accept()
            with link:
                link.recv(4096)
                link.sendall(answer)

    threading.Thread(target=run, daemon=True).start()
    return int(listener.getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "who"),
    [
        (b'HTTP/1.1 200 OK\r\n\r\n{"phase":"waiting","joined_ranks":1}', "window"),
        (b"HTTP/1.1 200 OK\r\n\r\n<html>", "other"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "other"),
        (b"\x00\xff", "other"),
        (b"", "silent"),
    ],
)
def test_who_answers_is_told_apart(answer: bytes, who: str) -> None:
    assert walk(serve(answer)).answer == who


def test_a_name_that_does_not_resolve_and_a_program_that_never_speaks() -> None:
    assert walk(1, host="no-such-host.invalid", patience=3.0).answer in ("name",)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert walk(mute.getsockname()[1], patience=0.3).answer == "silent"


@given(st.binary())
def test_no_answer_upsets_the_reader(data: bytes) -> None:
    seen = Road("x")
    road.understand(seen, data, "n", 0.0, 0.0)
    assert seen.answer in ("silent", "other", "window", "probe")
