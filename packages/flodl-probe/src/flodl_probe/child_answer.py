"""Asking what may hang or crash whoever asks (a driver, a dead mount, a stranger's library): in a forked child."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable
from typing import Any

MAX_ANSWER = 1 << 20


class NoAnswer(Exception):
    """A sentence's second half: "gave no answer in 5 s …", "was ended by signal 11 …", or what the child raised."""

    def __init__(self, why: str, hung: bool = False) -> None:
        self.hung = hung
        super().__init__(why)


def from_child(ask: Callable[[], Any], patience: float) -> Any:
    """What `ask` returns (plain JSON values), asked in a forked child. Raises NoAnswer.

    A child that does not answer is killed and not waited for: it may sit in the kernel, and we are about to end.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            try:
                answer = json.dumps({"answer": ask()})
            except Exception as err:
                answer = json.dumps({"raised": str(err) or type(err).__name__})
            with os.fdopen(writer, "wb") as pipe:
                pipe.write(answer.encode())
        finally:
            os._exit(0)
    os.close(writer)
    try:
        data = _read(reader, time.monotonic() + patience)
    finally:
        os.close(reader)
    if data is None:
        os.kill(child, signal.SIGKILL)
        raise NoAnswer(f"gave no answer in {patience:.0f} s", hung=True)
    _, status = os.waitpid(child, 0)
    try:
        answer = json.loads(data)
    except ValueError:
        number = status & 0x7F
        raise NoAnswer(f"was ended by signal {number} while it was asked" if number else "gave no answer") from None
    if "raised" in answer:
        raise NoAnswer(f"failed: {answer['raised']}")
    return answer["answer"]


def _read(reader: int, until: float) -> bytes | None:
    """Everything up to EOF; None when `until` comes first."""
    data = b""
    while len(data) < MAX_ANSWER:
        ready, _, _ = select.select([reader], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        part = os.read(reader, 1 << 16)
        if not part:
            return data
        data += part
    return data
