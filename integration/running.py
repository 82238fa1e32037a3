"""One `fdl` that has been started: its lines, its state.json, its processes, its end."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
from integration.processes import Process, alive, of_role
from integration.until import until

from flodl_wire.state import State

START = 40.0  # s from the command to a running world, on a box that does other things too
TERMINAL = ("done", "failed")


class Running:
    """`inventory` tells the run's live processes, wherever they are."""

    def __init__(self, process: subprocess.Popen[str], folder: Path, inventory: Callable[[], list[Process]]) -> None:
        self.process = process
        self.folder = folder
        self.inventory = inventory
        self.out: list[str] = []
        self.err: list[str] = []
        self._readers = [self._reader(process.stdout, self.out), self._reader(process.stderr, self.err)]

    def _reader(self, stream: IO[str] | None, lines: list[str]) -> threading.Thread:
        assert stream is not None

        def read() -> None:
            with stream:
                lines.extend(line.rstrip("\n") for line in stream)

        thread = threading.Thread(target=read, daemon=True)
        thread.start()
        return thread

    @property
    def text(self) -> str:
        """What was said last; for the message of a failed test too."""
        return "\n".join(["--- stdout", *self.out[-40:], "--- stderr", *self.err[-40:]])

    # what the run says

    def line(self, pattern: str, within: float = START) -> str:
        """The first line, of either stream, that `pattern` is found in."""

        def look() -> str | None:
            return next((line for line in [*self.out, *self.err] if re.search(pattern, line)), None)

        return until(look, within, lambda: f"no line with {pattern!r} in:\n{self.text}") or ""

    @property
    def run_folder(self) -> Path:
        return self.folder / "runs" / "latest"

    def state(self) -> State | None:
        try:
            return msgspec.json.decode((self.run_folder / "state.json").read_bytes(), type=State)
        except FileNotFoundError:
            return None

    def phase(self, *wanted: str, within: float = START) -> State:
        """The state as soon as its phase is one of `wanted`."""

        def look() -> State | None:
            state = self.state()
            if state and state.phase in TERMINAL and state.phase not in wanted:
                raise AssertionError(f"{state.phase} ({state.why}) instead of {' or '.join(wanted)}\n{self.text}")
            return state if state and state.phase in wanted else None

        state = until(look, within, lambda: f"{self.state()}\n{self.text}")
        assert state
        return state

    def result(self) -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads((self.run_folder / "result.json").read_text())
        return loaded

    # its processes

    def processes(self, role: str, count: int = 1, within: float = START) -> list[Process]:
        """The run's live processes of that role, once there are `count`."""

        def look() -> list[Process] | None:
            found = of_role(self.inventory(), role)
            return found if len(found) >= count else None

        found = until(look, within, lambda: "\n".join(map(str, self.inventory())) + "\n" + self.text)
        assert found
        return found

    def left(self) -> list[str]:
        return [str(process) for process in self.inventory() if alive(process)]

    def nothing_left(self, within: float) -> None:
        until(lambda: not self.left(), within, lambda: "still there:\n" + "\n".join(self.left()) + "\n" + self.text)

    # its end

    def interrupt(self) -> None:
        """Ctrl-C: the terminal sends it to the foreground process group."""
        self.process.send_signal(signal.SIGINT)

    def wait(self, within: float = 60.0) -> int:
        """The exit code; every line has been read by then."""
        try:
            code = self.process.wait(within)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {within:g} s; state {self.state()}\n{self.text}") from None
        for reader in self._readers:
            reader.join(5)
        return code

    def done(self, within: float = 60.0) -> State:
        """Ends with exit 0 and the verdict done; the last state."""
        code = self.wait(within)
        state = self.state()
        assert (code, state and state.phase) == (0, "done"), f"exit {code}, {state}\n{self.text}"
        assert state
        return state

    def failed(self, within: float = 60.0) -> State:
        """Ends with exit 1 and the verdict failed; the last state."""
        code = self.wait(within)
        state = self.state()
        assert (code, state and state.phase) == (1, "failed"), f"exit {code}, {state}\n{self.text}"
        assert "Traceback" not in "\n".join(self.err), self.text
        assert state
        return state

    def end(self) -> None:
        """Whatever happened: nothing of this run outlives its test."""
        for process in self.inventory():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
