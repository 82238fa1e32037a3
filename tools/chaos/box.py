"""A play on one box: three ranks, a small disk for runs/ where that can be had."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from integration.account import why
from integration.processes import alive, of_role, stands_still
from integration.project import Project, rank_command
from integration.running import Running
from integration.until import until
from tools.chaos import judge
from tools.chaos.deeds import AFTERWARDS, LINGER, ROLES, Deed, expected

RANKS, SAMPLES, EPOCHS = 3, 480, 24
DISK = 40 << 20  # bytes; a launcher wants 16 MB free to begin with
FULL = 1.0  # seconds that the disk stays full
STALL = 4.0  # seconds that a stopped rank is waited for; others may have to wait as long for a processor
LAUNCHER_STOPPED = 10.0  # seconds in which its agents must have given it up
END = 150.0  # seconds until a disturbed run must have ended, on a busy box
ENV = {"FLODL_NET_TIMEOUT_SCALE": "0.3"}  # deadlines short enough to wait for, and long enough for a busy box


def training(mode: str, stall: float) -> dict[str, str]:
    """The command that trains; behind it, `recording`."""
    script = "learning_rank.py" if mode == "cpu_cadence" else "learning_trainer.py"
    sizes = ["--samples", str(SAMPLES), "--epochs", str(EPOCHS)]
    run = rank_command(script, *sizes, "--stall-timeout", str(stall), "--linger", str(LINGER))
    return {"run": run, "mode": mode}


def recording(record: Path) -> tuple[str, str]:
    """The words that have a run's ranks write down what they deliver, in that new folder."""
    record.mkdir(parents=True)
    return "--record", str(record)


class Box:
    """`folder`: of this play alone. `records`: what ranks have delivered, run by run."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.folder = folder
        self.records: list[Path] = []
        self.project = Project(folder / "project", _free_port(), {"train": training(mode, STALL)}, RANKS)
        for ranks in (2, 3, 4):
            self.project.write(f"fdl.of{ranks}.yml", {"cluster": self.project.one_box(ranks)})
        self._runs = self.project.folder / "runs"

    def start(self, ranks: int, *words: str) -> Running:
        record = self.folder / f"record-{len(self.records)}"
        self.records.append(record)
        return self.project.start(*words, f"@of{ranks}", "train", *recording(record), env=ENV)

    def play(self, deed: Deed, undisturbed: float) -> list[str]:
        """What was not as it must be."""
        with self._small_disk(deed.kind == "disk"):
            try:
                return self._play(deed, undisturbed)
            except AssertionError as error:  # of the waiting inside `Running`
                return [str(error).split("\n--- stdout")[0][:400]]
            finally:
                self.project.end()

    def _play(self, deed: Deed, undisturbed: float) -> list[str]:
        run = self.start(RANKS)
        run.phase("training", "done", within=END)
        wait_for(deed.moment, self.records[0], lambda: run.process.poll() is not None)
        must = expected(deed)
        stopped = self._do(deed, run)
        code = run.wait(END)
        run.nothing_left(must.bound)
        state = run.state()
        folders = [run.run_folder.resolve()]
        wrong = judge.verdict(must, code, state, "\n".join(run.err))
        wrong += judge.account(must, code, state, why(self.project))
        wrong += judge.told(must, code, state) if stopped else []
        if code != 0:
            run = self.start(deed.ranks_after, "--resume=auto")
            run.done(END)
            folders.append(run.run_folder.resolve())
        result = self._result(run, deed)
        wrong += judge.merged(folders, self.records, result if deed.kind == "disk" else None, EPOCHS, SAMPLES)
        return wrong + (judge.learned(result, undisturbed) if result else [])

    def _result(self, run: Running, deed: Deed) -> dict[str, Any] | None:
        """None where the disk was full when it was to be written, and that was said."""
        try:
            return run.result()
        except FileNotFoundError:
            assert deed.kind == "disk" and any("cannot write" in line for line in run.err), "there is no result.json"
            return None

    def _do(self, deed: Deed, run: Running) -> bool:
        """Nothing where the run is over already. Whether somebody stands still now."""
        if deed.kind == "disk":
            self._fill()
            return False
        there, dice = run.inventory(), random.Random(deed.number)
        found = [of_role(there, role) for role in ROLES.get(deed.victim, (deed.victim,))]
        victims = [dice.choice(processes) for processes in found if processes]
        for victim in victims:
            with contextlib.suppress(ProcessLookupError):
                victim.kill(signal.SIGKILL if deed.kind == "kill" else signal.SIGSTOP)
        if deed.kind == "kill":
            return False
        until(lambda: all(not alive(victim) or stands_still(victim) for victim in victims), END)
        stopped = any(stands_still(victim) for victim in victims)
        if stopped and deed.victim == "launcher":  # nobody stands above it who would end it
            with contextlib.suppress(AssertionError):
                until(lambda: not of_role(run.inventory(), "agent"), LAUNCHER_STOPPED)
            victims[0].kill(signal.SIGCONT)
        return stopped

    def _fill(self) -> None:
        """The disk of runs/ is full for a while."""
        ballast = self._runs / "ballast"
        with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
            while True:
                file.write(b"\0" * (1 << 20))
        with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 512)
        time.sleep(FULL)
        ballast.unlink()

    @contextlib.contextmanager
    def _small_disk(self, wanted: bool) -> Iterator[None]:
        if not wanted:
            yield
            return
        self._runs.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", self._runs], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", self._runs], check=True)


def wait_for(moment: float, record: Path, over: Callable[[], bool]) -> None:
    """Until so much has been delivered (deeds.Deed.moment), which a busy box takes longer for; or the run is over.
    Training has begun.
    """
    if moment < 0:
        time.sleep(-moment)
        return
    whole = EPOCHS * SAMPLES

    def come() -> bool:
        return over() or judge.delivered_samples(record) >= min(moment, 1.0) * whole

    until(come, END)
    time.sleep(max(0.0, moment - 1.0))


class Undisturbed:
    """How far off an undisturbed run of a mode ends; it is played when it is first asked for. With as many ranks as any
    run has: more average more often per sample, and come less far.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._off: dict[str, float] = {}

    def __call__(self, mode: str) -> float:
        if mode not in self._off:
            box = Box(self._folder / mode, mode)
            try:
                run = box.start(max(AFTERWARDS))
                run.done(END)
                self._off[mode] = float(run.result()["epochs"][-1]["eval"]["off"])
            finally:
                box.project.end()
        return self._off[mode]


def can_mount() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    """Below the range that the kernel gives to whoever dials: a port of those may be taken a moment later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # test suites seed the usual one alike in every worker
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
