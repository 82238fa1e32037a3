"""What the launcher keeps for later: events.jsonl, without secrets. The clock, the environment and git are asked here.

Nothing here may slow or end a run: rows are small and buffered by the file system, git answers to a thread that nobody
waits for, and a disk that takes no more costs the rows it did not take.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from pathlib import Path

from flodl_window import events as ev
from flodl_window.aftermath import launch_facts
from flodl_window.aftermath.record import Record, Row
from flodl_window.formation import Charter
from flodl_window.run import Run
from flodl_window.run_dir import RunDir
from flodl_wire.hub_messages import FromHub, HubFailed, Notice
from flodl_wire.join_messages import HostFault, JoinUp, RankExited, RelayExited, Step
from flodl_wire.state import Afterthought

_TALK = (RankExited, RelayExited, HostFault, Step, HubFailed, Notice)


class Keeping:
    """One run's memory. `opened`: the loop's time when the window opened."""

    def __init__(self, run_dir: RunDir, charter: Charter, opened: float) -> None:
        self._run_dir = run_dir
        self._charter = charter
        self.mask = launch_facts.mask_for(charter, os.environ)
        self._record = Record(opened, self.mask)

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """The first row now; versions and the state of the code as soon as they are known."""
        folder = Path.cwd()
        self._run_dir.event(self._record.opened(launch_facts.facts(self._charter, os.environ, folder, self.mask)))

        def ask() -> None:
            row = self._record.row(loop.time(), "code", packages=launch_facts.packages(), git=launch_facts.code(folder))
            with contextlib.suppress(RuntimeError):  # the run is over already
                loop.call_soon_threadsafe(self._run_dir.event, row)

        threading.Thread(target=ask, name="code", daemon=True).start()

    def before(self, event: ev.Event, machine: Run, now: float) -> None:
        """Note what is about to be taken in."""
        if not isinstance(event, ev.Ticked):
            self._write(self._record.note(event, machine, now))

    def after(self, machine: Run, now: float) -> None:
        """Note the verdict when it has just been spoken."""
        self._write(self._record.verdict(machine, now))

    def clean(self, lines: list[str]) -> list[str]:
        """Lines of a process without the secrets that this run was given."""
        return [self.mask.known(line) for line in lines]

    def clean_message(self, message: JoinUp | FromHub) -> None:
        """The same of what a program or a host says in a message that will be shown and kept."""
        if isinstance(message, _TALK):
            for name in message.__struct_fields__:
                value = getattr(message, name)
                if isinstance(value, str):
                    setattr(message, name, self.mask.known(value))
                elif isinstance(value, list):
                    setattr(message, name, self.clean(value))

    def afterthought(self) -> Afterthought | None:
        """What is understood of a failure, from the run's files; None when it cannot be told, or there is nothing to
        say. It may be asked from another thread.
        """
        try:
            from flodl_window.aftermath import account, run_files

            path = self._run_dir.path
            told = account.make(
                run_files.read(path),
                lambda name: run_files.last_lines(path / "log" / f"{name}.log", account.LINES),
            )
            made = account.afterthought(told)
        except Exception:  # the report stumbles over the same, and says so
            return None
        if made is not None:
            made.tries = [self.mask.text(line) for line in made.tries]
            made.first, made.note = self.mask.text(made.first), self.mask.text(made.note)
        return made

    def report(self) -> str:
        """Write report.html; what hindered it, "" for nothing. It may be asked from another thread."""
        try:
            from flodl_window.aftermath import report

            report.write(self._run_dir.path)
        except Exception as err:  # a report that fails must never fail the run, whatever was wrong with it
            return f"there is no report of this run: {err or type(err).__name__} (fdl report tries again)"
        return ""

    def _write(self, rows: list[Row]) -> None:
        for row in rows:
            self._run_dir.event(row)
