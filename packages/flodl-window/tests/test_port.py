from __future__ import annotations

import os
import socket

import pytest

from flodl_window import port
from flodl_window.http_door import is_loopback
from flodl_wire.faults import Refused


def close(bound: port.Bound) -> None:
    for sock in bound.socks:
        sock.close()


def test_loopback_alone_when_nobody_comes_from_afar() -> None:
    bound = port.bind("example.invalid", 0, loopback=True)
    assert {sock.getsockname()[0] for sock in bound.socks} <= {"127.0.0.1", "::1"}
    assert bound.shown == "127.0.0.1" and bound.loopback and not bound.note
    close(bound)


def test_a_name_that_is_not_this_box_means_every_address_and_a_note() -> None:
    bound = port.bind("192.0.2.1", 0, loopback=False)
    assert "192.0.2.1 is no address of this box" in bound.note and not bound.loopback
    with socket.create_connection(("127.0.0.1", bound.port), 5):
        pass
    close(bound)


@pytest.mark.parametrize("every", port.EVERY_ADDRESS)
def test_every_address_may_be_asked_for(every: str) -> None:
    bound = port.bind(every, 0, loopback=False)
    assert (bound.shown, bound.note, bound.loopback) == ("every address", "", False)
    with socket.create_connection(("127.0.0.1", bound.port), 5):
        pass
    close(bound)


def test_a_name_the_hosts_file_maps_to_loopback_is_no_way_in_for_others() -> None:
    bound = port.bind("127.0.1.1", 0, loopback=False)
    assert bound.shown == "every address"
    close(bound)


def test_the_holder_of_a_taken_port_is_named() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        with pytest.raises(Refused) as caught:
            port.bind("127.0.0.1", holder.getsockname()[1], loopback=True)
    assert f"(pid {os.getpid()})" in caught.value.why and "controller.port" in caught.value.fix


def test_a_run_whose_port_nobody_chose_takes_another_and_says_who_holds_the_first() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        taken = holder.getsockname()[1]
        bound = port.bind_or_another("127.0.0.1", taken)
        try:
            assert bound.port != taken and bound.loopback
            assert f"(pid {os.getpid()}) holds port {taken}: this run takes {bound.port}" in bound.note
        finally:
            close(bound)


def test_a_port_that_was_just_in_use_is_free_at_once() -> None:
    first = port.bind("x", 0, loopback=True)
    client = socket.create_connection(("127.0.0.1", first.port))
    served, _ = first.socks[0].accept()
    served.close()  # the server closes first: its side goes to TIME_WAIT
    client.close()
    close(first)
    close(port.bind("x", first.port, loopback=True))


@pytest.mark.parametrize(
    ("address", "answer"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("?", False),
    ],
)
def test_loopback_is_told_by_the_number(address: str, answer: bool) -> None:
    assert is_loopback(address) is answer
