"""One question to one process over its stdin, until its end or a deadline; the process may be an ssh."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import IO

MAX_OUTPUT = 4 << 20
_ALLOCATED = re.compile(rb"Allocated port (\d+) for remote forward")  # ssh's words for -R 0


class Outcome:
    """`code` None: it was ended at the deadline, or could not be started (`failure`)."""

    def __init__(self) -> None:
        self.stdout = b""
        self.stderr = b""
        self.code: int | None = None
        self.failure = ""
        self.seconds = 0.0


def exchange(
    argv: list[str],
    env: Mapping[str, str],
    question: Callable[[int | None], bytes],
    seconds: float,
    tunnel: bool = False,
    started: Callable[[subprocess.Popen[bytes]], None] = lambda _: None,
) -> Outcome:
    """`question` gives what is written to stdin; with `tunnel` it is called once ssh has told the port it was given
    over there. Never raises for anything the process does; nothing of it is left afterwards.
    """
    outcome, began = Outcome(), time.monotonic()
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(env),
            start_new_session=True,
        )
    except OSError as err:
        outcome.failure = f"cannot run {argv[0]}: {(err.strerror or str(err)).lower()}"
        return outcome
    started(process)
    try:
        _converse(process, outcome, question, began + seconds, tunnel)
    finally:
        outcome.code = end(process)
        outcome.seconds = time.monotonic() - began
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                with suppress(OSError):
                    pipe.close()
    return outcome


def end(process: subprocess.Popen[bytes]) -> int | None:
    """Its exit code; None when it had to be killed."""
    code = process.poll()
    if code is None:
        try:
            return process.wait(0.2)  # both pipes are closed: it is about to end
        except subprocess.TimeoutExpired:
            pass
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, 9)  # an ssh may have a ProxyCommand
    if code is None:
        process.wait()
    return code


def _converse(
    process: subprocess.Popen[bytes],
    outcome: Outcome,
    question: Callable[[int | None], bytes],
    until: float,
    tunnel: bool,
) -> None:
    assert process.stdin and process.stdout and process.stderr
    if not tunnel:
        _write(process.stdin, question(None))
    asked = not tunnel
    with selectors.DefaultSelector() as selector:
        for pipe in (process.stdout, process.stderr):
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                return
            for key, _ in selector.select(left):
                data = os.read(key.fd, 1 << 16)
                if not data:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    outcome.stdout = (outcome.stdout + data)[-MAX_OUTPUT:]
                else:
                    outcome.stderr = (outcome.stderr + data)[-MAX_OUTPUT:]
                    told = _ALLOCATED.search(outcome.stderr)
                    if told and not asked:
                        asked = True
                        _write(process.stdin, question(int(told[1])))


def _write(pipe: IO[bytes], data: bytes) -> None:
    """A question is a few KB: a new pipe takes it at once."""
    with suppress(OSError):
        pipe.write(data)
        pipe.close()
