"""One program of a build: in a session of its own, so that all of it can be ended, and nothing of it by accident."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import IO

from flodl_wire import deadlines

TELL_EVERY = 60.0  # seconds between two signs of life on the terminal
ENGINE_PATIENCE = 30.0


def run(argv: Sequence[str], log: IO[bytes], environment: Mapping[str, str], tell: Callable[[float], None]) -> int:
    """Its exit code, negative for a signal. Whatever ends this call early ends the program and its children first.

    Raises FileNotFoundError when there is no such program.
    """
    began = time.monotonic()
    process = None
    try:
        with _interrupts_held():  # one between the fork and the assignment would leave a program that nobody knows
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=(log.fileno(),),
            )
        while True:
            try:
                code = process.wait(TELL_EVERY)
                break
            except subprocess.TimeoutExpired:
                tell(time.monotonic() - began)
    except BaseException:
        if process is not None:
            _end(process)
        raise
    if code:
        _signal(process.pid, signal.SIGKILL)  # what make left when one of its jobs failed
    return code


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM to all, then KILL to what is left after the grace, or at a second Ctrl-C. The group keeps its number until
    it is reaped, which comes last."""
    _signal(process.pid, signal.SIGTERM)
    until = time.monotonic() + deadlines.deadline(deadlines.KILL_GRACE)
    try:
        while time.monotonic() < until and not _ended(process.pid):
            time.sleep(0.02)
    except KeyboardInterrupt:
        pass
    finally:
        _signal(process.pid, signal.SIGKILL)
        process.wait()


def _ended(pid: int) -> bool:
    """True when it has ended; it is left to be reaped."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(group: int, number: signal.Signals) -> None:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        pass


def end_container(name: str) -> None:
    """A container outlives its client when that is killed."""
    try:
        subprocess.run(
            ["docker", "rm", "--force", name],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=deadlines.deadline(ENGINE_PATIENCE),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        pass


class _Interrupts:
    """Of this process: whether they wait, and whether one does."""

    held = False
    waiting = False


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """One that comes inside is raised at the end."""
    _Interrupts.held = True
    try:
        yield
    finally:
        _Interrupts.held = False
        if _Interrupts.waiting:
            _Interrupts.waiting = False
            raise KeyboardInterrupt


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """A closed terminal and a TERM end a build as Ctrl-C does; what is ignored (nohup, a background job) stays so."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        if not _Interrupts.held:
            raise KeyboardInterrupt
        _Interrupts.waiting = True

    former = {}
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            former[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
