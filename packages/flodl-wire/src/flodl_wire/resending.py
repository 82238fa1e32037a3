"""How soon a connection is used again once its road is whole again.

What is not acknowledged the kernel sends again, each time after twice as long a pause: behind a cable that was out for
nine seconds it may say nothing for nine more, and its host would be taken for lost. Linux can be told a longest pause
from 6.15 on; an older kernel keeps its own, of two minutes.
"""

from __future__ import annotations

import contextlib
import socket
import sys

LONGEST_PAUSE_MS = 2000  # a fraction of deadlines.SILENCE; the kernel takes 1000 or more
TCP_RTO_MAX_MS = 44  # of linux/tcp.h; Python has no name for it yet


def resend_soon(sock: socket.socket) -> None:
    """Of a TCP socket, at either end."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # the kernel does not know it
            sock.setsockopt(socket.IPPROTO_TCP, TCP_RTO_MAX_MS, LONGEST_PAUSE_MS)
