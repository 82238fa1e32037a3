"""Starting a process so that no signal to us is lost in the middle of it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def start(argv: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """As Popen. What a handler raises while Python forks (a `preexec_fn` makes it run hooks there) is swallowed by the
    interpreter, and whoever was told to end goes on; so handlers are called behind the fork, and the process is killed
    when one raises.
    """
    if threading.current_thread() is not threading.main_thread():
        return subprocess.Popen(argv, **options)
    arrived: list[tuple[int, FrameType | None]] = []
    handlers = {number: handler for number in _NUMBERS if callable(handler := signal.getsignal(number))}
    for each in handlers:
        signal.signal(each, lambda caught, frame: arrived.append((caught, frame)))
    try:
        process = subprocess.Popen(argv, **options)
    finally:
        for each, handler in handlers.items():
            signal.signal(each, handler)
    try:
        for number, frame in arrived:
            handlers[signal.Signals(number)](number, frame)
    except BaseException:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(5)
        raise
    return process
