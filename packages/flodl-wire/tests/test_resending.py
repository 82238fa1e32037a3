"""The longest pause before the kernel sends again."""

import socket

import pytest

from flodl_wire import deadlines, environ
from flodl_wire.resending import TCP_RTO_MAX_MS, longest_pause_ms, resend_soon

SCALES = pytest.mark.parametrize(("scale", "pause_ms"), [("0.1", 1000), ("1", 2000), ("3", 6000)])


@SCALES
def test_a_connection_is_tried_again_every_two_seconds_at_least(
    monkeypatch: pytest.MonkeyPatch, scale: str, pause_ms: int
) -> None:
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, scale)
    with socket.socket() as sock:
        resend_soon(sock)
        try:
            held = sock.getsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS)
        except OSError as err:
            pytest.skip(f"this kernel takes no longest pause, Linux does from 6.15 on ({err.strerror})")
        assert held == pause_ms


@SCALES
def test_the_kernel_gives_up_later_than_we_do(monkeypatch: pytest.MonkeyPatch, scale: str, pause_ms: int) -> None:
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, scale)
    assert longest_pause_ms() == pause_ms
    pauses = [min(0.2 * 2**number, pause_ms / 1e3) for number in range(16)]  # tcp_retries2, from the least pause on
    assert sum(pauses) > deadlines.deadline(deadlines.SILENCE)


def test_a_socket_that_has_no_such_option_is_left_as_it_is() -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        resend_soon(sock)
