"""A program whose output is shown as it comes and whose last lines are kept for the error."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl_wire import deadlines
from flodl_wire.faults import printable

TAIL = 20
_LINE = 64 << 10  # a longer line is cut: a progress bar without an end must not fill memory
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Ended:
    code: int  # negative: the signal
    tail: list[str]

    @property
    def how(self) -> str:
        return f"exit {self.code}" if self.code >= 0 else f"signal {-self.code}"


def run(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    show: str = "",
    meanwhile: Callable[[], None] | None = None,
) -> Ended:
    """Its output goes to stderr line by line, each behind `show` (nothing is shown for ""); stdin is empty.
    `meanwhile` is called once it runs.

    It runs in a session of its own; whatever ends this call early ends all of it, and so does the end of this thread.
    Raises FileNotFoundError when there is no such program.
    """
    process = subprocess.Popen(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_us(),
    )
    tail: deque[str] = deque(maxlen=TAIL)
    assert process.stdout is not None
    threading.Thread(target=_sweep_behind, args=(process.pid,), daemon=True).start()
    try:
        with process.stdout:
            if meanwhile is not None:
                meanwhile()
            while line := process.stdout.readline(_LINE):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                tail.append(text.rpartition("\r")[2])
                if show:
                    print(f"{show}{printable(text)}", file=sys.stderr, flush=True)
        return Ended(process.wait(), list(tail))
    except BaseException:
        _end(process)
        raise


def _sweep_behind(pid: int) -> None:
    """What a program leaves in its session when it ends (an ssh on a dead link) would hold its output open for long.
    The pid is its own until it is reaped, which waits for that output's end."""
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.killpg(pid, signal.SIGKILL)
    except (ChildProcessError, ProcessLookupError, PermissionError):
        pass


def _die_with_us() -> Callable[[], None]:
    import ctypes

    libc = ctypes.CDLL(None)  # before the fork: nothing is loaded in the child

    def set_it() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return set_it


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(deadlines.deadline(deadlines.KILL_GRACE))
        except subprocess.TimeoutExpired:
            continue
    process.wait()
