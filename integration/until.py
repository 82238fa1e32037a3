"""Waiting for a fact that no descriptor announces (a file, a process table): look often, fail with what was seen."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
EVERY = 0.02  # s between two looks: below what a person notices, above what a busy box feels


def until(look: Callable[[], T], within: float, saying: Callable[[], object] | str = "", every: float = EVERY) -> T:
    """What `look` returns as soon as that is true. Fails the test after `within` seconds, with `saying`. `every`: for
    what is there for milliseconds only.
    """
    end = time.monotonic() + within
    pause = threading.Event()
    while not (seen := look()):
        if time.monotonic() > end:
            words = saying() if callable(saying) else saying
            raise AssertionError(f"not within {within:g} s; last seen: {seen!r}\n{words}")
        pause.wait(every)
    return seen
