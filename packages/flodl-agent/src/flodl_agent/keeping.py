"""The agent's side of the keeper: starts it with the plan, tells it to go on living, hears its reports, and takes over
when it dies.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flodl_agent import descent
from flodl_agent.events import CannotStart, Event, Exited, KeeperEnded, KeeperSilent, Noted, Started
from flodl_agent.outputs import Outputs
from flodl_agent.plan import Child
from flodl_agent.preload import Preload
from flodl_agent.silence import Silence
from flodl_wire.deadlines import KEEPER_SILENCE, KILL_GRACE, STANDSTILL, deadline
from flodl_wire.faults import Refused

_KEEPER = Path(__file__).with_name("keeper.py")
_OVERTIME = 12.0  # seconds after the grace before a keeper that does not end is killed: it gives up by itself after 10
_TIMES = {"silence_s": KEEPER_SILENCE, "standstill_s": STANDSTILL, "grace_s": KILL_GRACE}
_SWEEP_POLL = 0.02
_LAST_POLL = 0.005
_LET_GO = 2.0  # seconds for a keeper that we have let go of to end


class Keeping:
    """One keeper and what it keeps. Events come through `on_event`, KeeperEnded last."""

    def __init__(self, host: str, on_event: Callable[[Event], None], outputs: Outputs) -> None:
        self._host = host
        self._on_event = on_event
        self._outputs = outputs
        self._loop = asyncio.get_running_loop()
        self._children: dict[str, Child] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""
        self._reports: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._overtime: asyncio.TimerHandle | None = None
        self._left = 0
        self._over = False  # it has said that nothing is left
        self._silence: Silence | None = None  # of the keeper, from its first word on: until then it is being started

    def start(self, children: list[Child], run_dir: str, preload: Preload | None) -> None:
        """Fork the keeper, here in the main thread. With `preload` it has the ranks forked. Raises OSError."""
        self._children = {child.name: child for child in children}
        plan = []
        ends: list[int] = []
        for child in children:
            out, err = self._outputs.open(child.name)
            ends += (out, err)
            what = {"name": child.name, "argv": child.argv, "env": child.env, "cwd": child.cwd}
            plan.append({**what, "out": out, "err": err, "fork": child.rank is not None})
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_KEEPER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=ends,
                start_new_session=True,  # a signal to our process group must leave it to do its work
                cwd="/",
            )
        finally:
            for end in ends:
                os.close(end)
        assert self._process.stdin and self._process.stdout
        times = {name: deadline(base) for name, base in _TIMES.items()}
        self._tell({"plan": {"children": plan, "fork": preload and preload.order(), "run_dir": run_dir, **times}})
        os.set_blocking(self._process.stdin.fileno(), False)
        self._loop.add_reader(self._process.stdout.fileno(), self._hear)
        self._spawn(self._follow())

    def beat(self) -> None:
        """Tell it that we live, and look whether it does."""
        if self._process is None:
            return
        self._tell({"beat": 1})
        now = time.monotonic()
        silent = self._silence.too_long(now, self._stands_still) if self._silence and not self._over else 0.0
        if self._silence and silent:
            self._silence.broken(now)  # by what is done about it
            self._on_event(KeeperSilent(silent))

    def trained(self) -> None:
        """Tell it that nothing is missing of its ranks any more but their end."""
        self._tell({"trained": 1})

    def _stands_still(self) -> bool:
        keeper = descent.read_process(self._process.pid) if self._process else None
        return keeper is not None and keeper.stopped

    def stop(self, grace: float) -> None:
        """TERM to everything, KILL after `grace` seconds. A keeper that cannot do it any more is replaced by us."""
        self._tell({"stop": grace})
        if self._process:
            self._process.send_signal(signal.SIGCONT)  # should somebody have stopped it
        if self._overtime:
            self._overtime.cancel()
        self._overtime = self._loop.call_later(grace + _OVERTIME, self.kill)

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process and self._process.stdin
        line = memoryview(json.dumps(command).encode() + b"\n")
        try:
            while line:
                line = line[os.write(self._process.stdin.fileno(), line) :]
        except BlockingIOError:  # it stands still, which it is about to be given up for
            pass
        except BrokenPipeError:  # it is dead: the end of its reports says so
            pass

    def kill(self) -> None:
        if self._process:
            self._process.kill()

    async def let_go(self) -> None:
        """Our goodbyes are said: have the keeper end, which has watched us until now, and wait for that."""
        if self._process is None or self._process.stdin is None:
            return
        self._process.stdin.close()
        until = self._loop.time() + _LET_GO
        while self._process.poll() is None:
            if self._loop.time() > until:
                self._process.kill()
            await asyncio.sleep(_LAST_POLL)

    # ---- reports

    def _hear(self) -> None:
        assert self._process and self._process.stdout
        data = os.read(self._process.stdout.fileno(), 1 << 16)
        now = time.monotonic()
        self._silence = self._silence or Silence(deadline(KEEPER_SILENCE), now)
        self._silence.broken(now)
        if not data:
            self._loop.remove_reader(self._process.stdout.fileno())
            self._reports.put_nowait(None)
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._reports.put_nowait(json.loads(line))

    async def _follow(self) -> None:
        while (report := await self._reports.get()) is not None:
            if "started" in report:
                self._on_event(Started(report["started"], self._children[report["started"]].rank))
            elif "failed" in report:
                self._on_event(CannotStart(self._why_not(report)))
            elif "note" in report:
                self._on_event(Noted(report["note"]))
            elif "left" in report:
                self._left = report["left"]
            elif "over" in report:
                self._over = True
                break
            elif "exited" in report:
                self._spawn(self._report_exit(report))
        await self._end()

    async def _report_exit(self, report: dict[str, Any]) -> None:
        """An exit is told when all that the process printed has been."""
        name = report["exited"]
        tail = await self._outputs.drain(name)
        child = self._children[name]
        oom, stood_still = report.get("oom", False), report["stood_still_s"]
        self._on_event(Exited(name, child.rank, report.get("code"), report.get("signal"), oom, tail, stood_still))

    async def _end(self) -> None:
        """Nothing is left, says the keeper; or it has ended without a word: then its children are dead too (the kernel
        saw to it) and the orphans are ours.
        """
        assert self._process and self._process.stdout
        if self._overtime:
            self._overtime.cancel()
        if not self._over:
            while self._process.poll() is None:  # its pipe closed a moment before
                await asyncio.sleep(_SWEEP_POLL)
            await sweep()
        if self._left:  # somebody who cannot be ended holds the pipes
            for name in self._children:
                await self._outputs.drain(name)
        await asyncio.gather(*(task for task in self._tasks if task is not asyncio.current_task()))
        await self._outputs.drain_all()
        self._loop.remove_reader(self._process.stdout.fileno())
        self._process.stdout.close()
        self._on_event(KeeperEnded(clean=self._over, left=self._left))

    def _spawn(self, work: Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _why_not(self, report: dict[str, Any]) -> Refused:
        child = self._children[report["failed"]]
        what = f"cannot start {child.name} on {self._host}"
        if report["cwd"]:
            return Refused(
                "no-folder", what, f"the folder {child.cwd} cannot be entered: {_reason(report)}", "check path: and cwd"
            )
        if report["errno"] == errno.ENOENT:
            program = child.argv[0]
            if "/" in program:
                return Refused(
                    "no-command", what, f'no such command "{program}" in {child.cwd} (or its #! line names none)'
                )
            return Refused(
                "no-command", what, f'no such command "{program}"', f"PATH there is {child.env.get('PATH', '')}"
            )
        return Refused("no-command", what, f'"{child.argv[0]}": {_reason(report)}')


def _reason(report: dict[str, Any]) -> str:
    return os.strerror(report["errno"]).lower() if report["errno"] else str(report["why"])


async def sweep() -> None:
    """KILL what descends from this process until nothing does; bury the dead. The keeper is gone, and we are the next
    subreaper.
    """
    while True:
        descent.kill_descendants()
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        await asyncio.sleep(_SWEEP_POLL)
