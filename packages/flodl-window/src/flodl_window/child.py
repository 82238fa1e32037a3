"""A child of ours in a session of its own: its lines, its last words, its end. Killed by its handle only, never by a
remembered number.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections import deque
from collections.abc import Callable, Sequence

from flodl_window.words import ending_of
from flodl_wire import environ
from flodl_wire.faults import Broken

LAST_WORDS = 50  # lines kept
LINE_LIMIT = 1 << 20  # bytes of one line; longer ones are cut


def child_environment() -> dict[str, str]:
    """Ours, without the variables that would tell the child it is somebody else."""
    gone = {*environ.ROLE_VARIABLES, environ.CONFIG_JSON, environ.MODE}
    return {name: value for name, value in os.environ.items() if name not in gone}


class Child:
    """Runs `argv`. `line(stream, text)` gets each line of "out" and "err"; `ended(how)` comes once, after the last
    line.

    With `keep_stdin` stdin stays open after `first_line`: its end is the order to end.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        line: Callable[[str, str], None],
        ended: Callable[[str], None],
        first_line: bytes,
        keep_stdin: bool,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._line = line
        self._ended = ended
        self.tail: deque[str] = deque(maxlen=LAST_WORDS)
        self.returncode: int | None = None
        self._open = {"out", "err"}
        self._loop = asyncio.get_running_loop()
        try:
            self._process = subprocess.Popen(
                list(argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                pass_fds=tuple(pass_fds),
                env=child_environment(),
            )
        except OSError as err:
            raise Broken("no-child", f"cannot start {argv[0]}", str(err)) from None
        self._pidfd = os.pidfd_open(self._process.pid)
        self._loop.add_reader(self._pidfd, self._reap)
        for name, pipe in (("out", self._process.stdout), ("err", self._process.stderr)):
            assert pipe is not None
            _Lines(self._loop, pipe, name, self._take, self._closed)
        self._feed(first_line, keep_stdin)

    def _feed(self, first_line: bytes, keep: bool) -> None:
        """The first line goes out without blocking: a spec for a thousand hosts is longer than a pipe."""
        stdin = self._process.stdin
        assert stdin is not None
        os.set_blocking(stdin.fileno(), False)
        left = memoryview(first_line)

        def write() -> None:
            nonlocal left
            try:
                left = left[os.write(stdin.fileno(), left) :]
            except BlockingIOError:
                return
            except OSError:
                left = left[:0]
            if not left:
                self._loop.remove_writer(stdin.fileno())
                if not keep:
                    self.close_stdin()

        self._loop.add_writer(stdin.fileno(), write)

    @property
    def alive(self) -> bool:
        return self.returncode is None

    def close_stdin(self) -> None:
        """The order to end."""
        stdin = self._process.stdin
        if stdin is not None and not stdin.closed:
            self._loop.remove_writer(stdin.fileno())
            with contextlib.suppress(OSError):
                stdin.close()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal its whole session; safe because the child is not reaped while `alive`."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, number)

    def _take(self, name: str, text: str) -> None:
        if name == "err":
            self.tail.append(text)
        self._line(name, text)

    def _closed(self, name: str) -> None:
        self._open.discard(name)
        self._maybe_ended()

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self.returncode = self._process.wait()
        self.close_stdin()
        # Its last lines are still in the pipes; a grandchild that holds them open does not keep us.
        self._loop.call_later(0.5, self._give_up_on_pipes)
        self._maybe_ended()

    def _give_up_on_pipes(self) -> None:
        if self._open:
            self._open.clear()
            self._maybe_ended()

    def _maybe_ended(self) -> None:
        if self.returncode is not None and not self._open:
            ended, self._ended = self._ended, lambda how: None
            ended(ending_of(self.returncode))


class _Lines:
    """Lines of one pipe as they come, decoded with replacement."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        pipe: object,
        name: str,
        line: Callable[[str, str], None],
        closed: Callable[[str], None],
    ) -> None:
        self._loop, self._pipe, self._name, self._line, self._closed = loop, pipe, name, line, closed
        self._fd: int = pipe.fileno()  # type: ignore[attr-defined]
        self._rest = b""
        os.set_blocking(self._fd, False)
        loop.add_reader(self._fd, self._readable)

    def _readable(self) -> None:
        try:
            data = os.read(self._fd, 1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._fd)
            if self._rest:
                self._emit(self._rest)
            self._pipe.close()  # type: ignore[attr-defined]
            self._closed(self._name)
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._emit(line)
        if len(self._rest) > LINE_LIMIT:
            self._emit(self._rest)
            self._rest = b""

    def _emit(self, line: bytes) -> None:
        self._line(self._name, line.decode("utf-8", "replace").rstrip("\r"))
