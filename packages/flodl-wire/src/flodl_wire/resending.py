"""How soon a connection is used again once its road is whole again.

What is not acknowledged the kernel sends again, each time after twice as long a pause: behind a cable that was out for
nine seconds it may say nothing for nine more, and its host would be taken for lost. Linux can be told a longest pause
from 6.15 on; an older kernel keeps its own, of two minutes. The pause moves with the scale of time-outs: the kernel
gives a connection up after fifteen tries, 27 s of two each, which must stay behind the limit of silence.
"""

from __future__ import annotations

import contextlib
import socket
import sys

from flodl_wire import deadlines

LONGEST_PAUSE = 2.0  # seconds: a fraction of deadlines.SILENCE
TCP_RTO_MAX_MS = 44  # of linux/tcp.h; Python has no name for it yet


def longest_pause_ms() -> int:
    return int(1000 * deadlines.deadline(LONGEST_PAUSE))  # 1000 at least, which is the kernel's least too


def resend_soon(sock: socket.socket) -> None:
    """Of a TCP socket, at either end."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the kernel does not know it
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, longest_pause_ms())
