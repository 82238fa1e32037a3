"""One publish (or fetch) at a time in a folder; who holds it is said. The kernel drops it with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from flodl_wire.faults import Transient

NAME = "lock"


@contextmanager
def held(state: Path, doing: str, *, wait: bool = False, say: Callable[[str], None] = print) -> Iterator[None]:
    """`state`: the folder beside the tree, made when missing. `doing`: "publish" or "fetch".

    Raises Transient naming the holder, unless `wait`: then it says so and waits.
    """
    state.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(state / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(descriptor)
            if not wait:
                fix = "wait for its end, or use --wait" if doing == "publish" else "wait for its end"
                raise Transient("busy", f"cannot {doing} in {state.parent}", f"{holder} is at it", fix) from None
            say(f"waiting for {holder}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "doing": doing, "since": int(time.time())}).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        clock = time.strftime("%H:%M:%S", time.localtime(told["since"]))
        return f"a {told['doing']} of process {int(told['pid'])}, since {clock},"
    except (ValueError, KeyError, TypeError):
        return "another process"
