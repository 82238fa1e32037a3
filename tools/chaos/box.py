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


def learning(stall: float, record: Path) -> list[str]:
    """Arguments of the ranks."""
    sizes = ["--samples", str(SAMPLES), "--epochs", str(EPOCHS)]
    return [*sizes, "--stall-timeout", str(stall), "--record", str(record), "--linger", str(LINGER)]


class Box:
    """`folder`: of this play alone. `record`: what ranks have delivered."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.record = folder / "record"
        self.record.mkdir(parents=True)
        words = learning(STALL, self.record)
        train = {"run": rank_command("learning_rank.py", *words), "mode": "cpu_cadence"}
        self.project = Project(folder / "project", _free_port(), {"train": train}, RANKS)
        for ranks in (2, 3, 4):
            self.project.write(f"fdl.of{ranks}.yml", {"cluster": self.project.one_box(ranks)})
        self._runs = self.project.folder / "runs"

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
        run = self.project.start("@of3", "train", env=ENV)
        run.phase("training", "done", within=END)
        wait_for(deed.moment, self.record, lambda: run.process.poll() is not None)
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
            again = self.project.start("--resume=auto", f"@of{deed.ranks_after}", "train", env=ENV)
            again.done(END)
            folders.append(again.run_folder.resolve())
            run = again
        if self._began_anew(folders):
            folders = folders[1:]
        result = self._result(run, deed)
        wrong += judge.epochs(folders, result if deed.kind == "disk" else None, EPOCHS, SAMPLES)
        wrong += judge.delivered(self.record, EPOCHS, SAMPLES)
        return wrong + (judge.learned(result, undisturbed) if result else [])

    def _result(self, run: Running, deed: Deed) -> dict[str, Any] | None:
        """None where the disk was full when it was to be written, and that was said."""
        try:
            return run.result()
        except FileNotFoundError:
            assert deed.kind == "disk" and any("cannot write" in line for line in run.err), "there is no result.json"
            return None

    def _began_anew(self, folders: list[Path]) -> bool:
        """The first run left no checkpoint, so short was it; or a finished one, and only its launcher had not yet said
        so.
        """
        begun = (folders[0] / "checkpoint.safetensors").exists()
        return len(folders) == 2 and (not begun or judge.settled_epochs(folders[0]) == EPOCHS)

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
    """Until so much has been delivered (deeds.Deed.moment), which a busy box takes longer for; or the run is over."""
    whole = EPOCHS * SAMPLES

    def come() -> bool:
        delivered = sum(len(samples) for samples in judge.delivered_samples(record).values())
        return over() or delivered >= min(moment, 1.0) * whole

    until(come, END)
    time.sleep(max(0.0, moment - 1.0))


def undisturbed(folder: Path) -> float:
    """How far off an undisturbed run ends at most. More ranks average more often per sample, and come less far."""
    box, results = Box(folder), []
    try:
        for ranks in (RANKS, max(AFTERWARDS)):
            run = box.project.start(f"@of{ranks}", "train", env=ENV)
            run.done(END)
            results.append(run.result())
        return float(max(result["epochs"][-1]["eval"]["off"] for result in results))
    finally:
        box.project.end()


def can_mount() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    """Below the range that the kernel gives to whoever dials: a port of those may be taken a moment later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)  # test suites seed the usual one alike in every worker
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
