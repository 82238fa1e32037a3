"""The longest pause before the kernel sends again."""

import socket

import pytest

from flodl_wire.resending import LONGEST_PAUSE_MS, TCP_RTO_MAX_MS, resend_soon


def test_a_connection_is_tried_again_every_two_seconds_at_least() -> None:
    with socket.socket() as sock:
        resend_soon(sock)
        try:
            held = sock.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS)
        except OSError as err:
            pytest.skip(f"this kernel takes no longest pause, Linux does from 6.15 on ({err.strerror})")
        assert held == LONGEST_PAUSE_MS


def test_a_socket_that_has_no_such_option_is_left_as_it_is() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        resend_soon(sock)
