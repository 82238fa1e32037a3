"""The keeper: parent of all processes a host runs for a world, standing between them and the agent.

It is a process of its own, in a session of its own, so that whatever becomes of the agent somebody is left who ends
what was started. Started as ``python -I -S keeper.py`` (standard library only: it is up in 35 ms and imports nothing a
user could break).

    agent ── stdin ──▶ keeper     one JSON line each: {"plan": …} first, then {"beat": 1}, {"trained": 1},
                                  {"stop": grace seconds}
    agent ◀─ stdout ── keeper     {"started": name}, {"failed": name, "errno": n, "cwd": bool, "why": text},
                                  {"exited": name, "code" | "signal": n, "oom": bool, "stood_still_s": n}, {"left": n},
                                  {"note": text},
                                  {"beat": 1} in answer to one, {"over": 1} last

A plan with a "fork" order has its ranks forked from a process that has imported torch for all of them (forking.py).
Should that fail, for whatever reason, they are executed instead, and a note says why.

- end of stdin: the agent is gone. KILL everything at once. (Its death wakes a keeper that is stopped.)
- no beat for the plan's `silence_s`: the agent is stopped, or after longer (silence.py) stuck. KILL it (through a
  pidfd: no remembered pid) and everything.
- the keeper itself is stopped or stuck: the agent misses its answers, and ends the run on this host.
- {"stop": g}, or TERM to the keeper: TERM to everything, KILL after g seconds.
- {"trained": 1}: training is whole, and ranks only have to leave. A child that is then stopped for the plan's
  `standstill_s` (standstill.py) is KILLed with its session; the others do as they like.
- all children have ended: what they left behind is ended, and the agent is told that nothing is left. Until it lets go
  of us, it is watched while it says its goodbyes: on another box nobody else could end it.
- the keeper itself is killed: the kernel KILLs its children (PR_SET_PDEATHSIG); the agent, a subreaper too, sweeps the
  orphans.

*Everything* is what descends from the keeper at that moment (descent.py), own sessions included; nothing else is ever
signalled.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120 - behind the stdlib

from flodl_agent import descent
from flodl_agent.forking import Forked, Forking
from flodl_agent.ladder import Ladder
from flodl_agent.oom import OomWatch
from flodl_agent.silence import Silence
from flodl_agent.standstill import Standstill

_ENDING_POLL = 0.02  # seconds between two looks at what still lives
_GIVE_UP = 10.0  # seconds after KILL: a process in uninterruptible sleep, or another user's, is reported and left


class Keeper:
    """`agent`: its pidfd, None once it is known to be dead."""

    def __init__(self, plan: dict[str, Any], agent: int, agent_pid: int) -> None:
        self.children: dict[int, tuple[str, subprocess.Popen[bytes] | Forked]] = {}  # by pid, until reaped
        self.forking: Forking | None = None  # while ranks are being forked
        self.grace: float = plan["grace_s"]
        self.run_dir: str = plan["run_dir"]
        self.ladder = Ladder()
        self.leftovers: dict[int, Ladder] = {}  # by session: the session of a child that has ended, still inhabited
        self.termed: set[tuple[int, int]] = set()
        self.oom = OomWatch()
        self.agent: int | None = agent
        self.agent_pid = agent_pid
        self.silence = Silence(plan["silence_s"], time.monotonic())
        self.standstill_s: float = plan["standstill_s"]
        self.trained = False
        self.standstills: dict[int, Standstill] = {}  # by child's pid, behind the training
        self.stood_still: dict[int, float] = {}  # by pid: seconds, of those that were ended for it
        self.look_at = 0.0  # the next look at them

    # ---- starting

    def start(self, children: list[dict[str, Any]], order: dict[str, Any] | None) -> None:
        """All or nothing: the first that cannot start is reported and the others are ended. With an `order`, those
        marked "fork" are forked.
        """
        forked = [child for child in children if order and child["fork"]]
        self._execute([child for child in children if child not in forked])
        if order and forked and not self.ladder.begun:
            try:
                self.forking = Forking(order, forked, time.monotonic(), self._die_with_us())
                report(note=order["note"])
            except (OSError, ValueError, subprocess.SubprocessError):  # executing them will say it better
                self._execute(forked)

    def _execute(self, children: list[dict[str, Any]]) -> None:
        for child in children:
            try:
                process = self._spawn(child)
            except (OSError, ValueError, subprocess.SubprocessError) as err:
                number = err.errno if isinstance(err, OSError) else None
                at_cwd = isinstance(err, OSError) and os.fsencode(err.filename or "") == child["cwd"]
                report(failed=child["name"], errno=number, cwd=at_cwd, why=str(err))
                self.ladder.order(time.monotonic(), 0)
                break
            self.children[process.pid] = (child["name"], process)
            report(started=child["name"], pid=process.pid)
        _close_outputs(children)

    def _spawn(self, child: dict[str, Any]) -> subprocess.Popen[bytes]:
        """From the main thread only: the parent-death signal fires when the thread that forked ends."""
        return subprocess.Popen(
            child["argv"],
            env=child["env"],
            cwd=child["cwd"],
            stdin=subprocess.DEVNULL,
            stdout=child["out"],
            stderr=child["err"],
            start_new_session=True,
            preexec_fn=self._die_with_us(),
        )

    def _die_with_us(self) -> Callable[[], None]:
        keeper = os.getpid()
        return lambda: descent.die_with(keeper)

    # ---- forking

    def _note_forked(self) -> None:
        """Ranks that the fork server has made are ours from here on, although they wait until it has gone."""
        forking = self.forking
        if forking is None or forking.pids or forking.why:
            return
        forking.hear()
        for child, pid in zip(forking.children, forking.pids, strict=bool(forking.pids)):
            self.children[pid] = (child["name"], Forked(pid))
        if forking.pids:
            forking.release()

    def _after_forking(self) -> None:
        """The fork server has ended."""
        forking, self.forking = self.forking, None
        assert forking
        if forking.bury():
            for child, pid in zip(forking.children, forking.pids, strict=True):
                report(started=child["name"], pid=pid)
            _close_outputs(forking.children)
        elif self.ladder.begun:
            _close_outputs(forking.children)
        else:
            report(note=f"every rank imports for itself: the fork server gave up ({forking.why})")
            self._execute(forking.children)

    # ---- living

    def run(self, commands: Commands, wake: int) -> int:
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(wake, select.POLLIN)
        forking = self.forking
        if forking:
            poll.register(forking.reports, select.POLLIN)
        while True:
            if forking and self.forking is None:
                poll.unregister(forking.reports)
                forking = None
            now = time.monotonic()
            wait = self.silence.every
            if self.forking:
                wait = min(wait, self.forking.seconds_left(now) + 0.01)
            if self.ladder.begun or self.leftovers:
                wait = _ENDING_POLL
            ready = [number for number, _ in poll.poll(wait * 1000)]
            if wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(wake, 512)
            if 0 in ready and not self._listen(commands):
                poll.unregister(0)
            self._note_forked()
            self._reap()
            if self.forking:
                self.forking.watch(time.monotonic())
            self._watch_agent()
            self._watch_the_trained(time.monotonic())
            if self._nothing_left():
                report(over=1)
                return self._see_off(commands)

    def _see_off(self, commands: Commands) -> int:
        """Until the agent lets go of us."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        while self.agent is not None:
            if poll.poll(self.silence.every * 1000):
                self._listen(commands)
            self._watch_agent()
        return 0

    def _listen(self, commands: Commands) -> bool:
        """Take what the agent says; False at its end."""
        self.obey(commands.read())
        if commands.ended:
            self.agent = None
            self.ladder.order(time.monotonic(), 0)
        return not commands.ended

    def obey(self, orders: list[dict[str, Any]]) -> None:
        for order in orders:
            if "stop" in order:
                self.ladder.order(time.monotonic(), order["stop"])
            self.trained |= "trained" in order
            self.oom.refresh()
        self.silence.broken(time.monotonic())
        if any("beat" in order for order in orders):
            report(beat=1)

    def _watch_agent(self) -> None:
        if self.agent is not None and self.silence.too_long(time.monotonic(), self._agent_stands_still):
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self.agent, signal.SIGKILL)
            self.agent = None
            self.ladder.order(time.monotonic(), 0)

    def _agent_stands_still(self) -> bool:
        agent = descent.read_process(self.agent_pid)
        return agent is not None and agent.stopped

    def _watch_the_trained(self, now: float) -> None:
        """Behind the training: KILL who is stopped, and what it started. A rank may still wait for the relay's word."""
        if not self.trained or self.ladder.begun or now < self.look_at:
            return
        tree = descent.descendants()
        for pid in [*self.children]:
            standstill = self.standstills.setdefault(pid, Standstill(self.standstill_s, now))
            self.look_at = now + standstill.every
            session = [process for process in tree if process.session == pid and not process.zombie]
            if seconds := standstill.too_long(session, now):
                self.stood_still.setdefault(pid, seconds)
                self._end_session(pid, now, 0.0)

    def _end_session(self, session: int, now: float, grace: float) -> None:
        self.leftovers.setdefault(session, Ladder()).order(now, grace)

    def _reap(self) -> None:
        """Take leave of every dead child, our own and adopted ones alike. Those started last are reported first: a rank
        before its relay.
        """
        ended = []
        with contextlib.suppress(ChildProcessError):  # no children at all
            while (peek := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if peek.si_pid not in self.children:
                    self._note_forked()  # it is ours only since its fork server has ended, and so has said all
                if self.forking and peek.si_pid == self.forking.pid:
                    self._after_forking()
                elif peek.si_pid in self.children:
                    name, process = self.children.pop(peek.si_pid)
                    ended.append((name, process.wait(), self.stood_still.get(peek.si_pid, 0.0)))
                    self._end_session(peek.si_pid, time.monotonic(), self.grace)
                else:
                    os.waitpid(peek.si_pid, 0)
        for name, code, stood_still in reversed(ended):
            if code >= 0:
                report(exited=name, code=code, stood_still_s=stood_still)
            else:
                oom = code == -signal.SIGKILL and not stood_still and self.oom.struck()
                report(exited=name, signal=-code, oom=oom, stood_still_s=stood_still)

    # ---- ending

    def _nothing_left(self) -> bool:
        """Send what is due; True when the keeper may end."""
        if not self.children and not self.forking:
            self.ladder.order(time.monotonic(), self.grace)
        if not self.ladder.begun and not self.leftovers:
            return False
        now = time.monotonic()
        tree = descent.descendants()
        living = [process for process in tree if not process.zombie]
        for process in living:
            ladder = self.ladder if self.ladder.begun else self.leftovers.get(process.session)
            if ladder is not None:
                self._send(process, ladder.due(now))
        inhabited = {process.session for process in tree}
        self.leftovers = {session: ladder for session, ladder in self.leftovers.items() if session in inhabited}
        if self.ladder.overdue(now) > _GIVE_UP and living:
            report(left=len(living))
            return True
        return self.ladder.begun and not tree and not self.children and not self.forking

    def _send(self, process: descent.Process, number: int | None) -> None:
        """KILL as often as it takes, TERM once: a second one often means "now" to a program that is cleaning up."""
        key = (process.pid, process.started)
        if number == signal.SIGTERM:
            if key in self.termed:
                return
            self.termed.add(key)
        if number is not None:
            descent.send_signal(process, number)


class Commands:
    """JSON lines from stdin; `ended` once the agent's side is closed."""

    def __init__(self) -> None:
        self._buffer = b""
        self.ended = False

    def read(self) -> list[dict[str, Any]]:
        data = os.read(0, 1 << 20)
        self.ended = not data
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        return [json.loads(line) for line in lines]


def _raw(text: str) -> bytes:
    """The plan's texts are UTF-8, with what was no UTF-8 smuggled through as surrogates: exact under any locale."""
    return text.encode("utf-8", "surrogateescape")


def _exact(child: dict[str, Any]) -> dict[str, Any]:
    env = {_raw(name): _raw(value) for name, value in child["env"].items()}
    return {**child, "argv": [_raw(word) for word in child["argv"]], "env": env, "cwd": _raw(child["cwd"])}


def _close_outputs(children: list[dict[str, Any]]) -> None:
    """Ours to close, or the agent never sees the end of a child's output."""
    for child in children:
        os.close(child["out"])
        os.close(child["err"])


def report(**event: object) -> None:
    """One line to the agent. It never blocks us: a stopped agent must not keep us from ending its processes."""
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(event).encode() + b"\n")


def main() -> int:
    agent_pid = os.getppid()
    agent = os.pidfd_open(agent_pid)
    descent.wake_with_parent()
    if os.getppid() != agent_pid:
        return 1  # gone already; nothing has been started
    descent.become_subreaper()
    wake, wake_end = os.pipe()
    for number in (wake, wake_end, 1):
        os.set_blocking(number, False)
    signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    commands = Commands()
    lines: list[dict[str, Any]] = []
    while not lines and not commands.ended:
        lines = commands.read()
    if not lines:
        return 1
    keeper = Keeper(lines[0]["plan"], agent, agent_pid)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: keeper.ladder.order(time.monotonic(), keeper.grace))
    try:
        plan = lines[0]["plan"]
        keeper.start([_exact(child) for child in plan["children"]], plan["fork"])
        keeper.obey(lines[1:])
        return keeper.run(commands, wake)
    finally:
        import shutil  # not before it is needed: it costs a third of our start

        shutil.rmtree(keeper.run_dir, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
