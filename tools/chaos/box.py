"""A play on one box: three ranks, a small disk for runs/ where that can be had."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from integration.processes import Process, alive, of_role
from integration.project import Project, rank_command
from integration.running import Running
from tools.chaos import judge
from tools.chaos.deeds import AFTERWARDS, Deed, expected

RANKS, SAMPLES, EPOCHS = 3, 480, 24
DISK = 40 << 20  # bytes; a launcher wants 16 MB free to begin with
FULL = 1.0  # seconds that the disk stays full
STALL = 1.5  # seconds that a stopped rank is waited for
END = 60.0  # seconds until a disturbed run must have ended, on a busy box
ENV = {"FLODL_NET_TIMEOUT_SCALE": "0.1"}


def learning(stall: float, record: Path) -> list[str]:
    """Arguments of the ranks."""
    sizes = ["--samples", str(SAMPLES), "--epochs", str(EPOCHS)]
    return [*sizes, "--stall-timeout", str(stall), "--record", str(record)]


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
        run.phase("training", "done")
        time.sleep(deed.moment)
        must = expected(deed)
        victim = self._do(deed, run)
        code = run.wait(END)
        if victim and deed.kind == "stop" and code == 0 and alive(victim):
            with contextlib.suppress(ProcessLookupError):
                victim.kill(signal.SIGCONT)  # an agent that had done its part: nobody is left who would end it
        run.nothing_left(must.bound)
        state = run.state()
        folders = [run.run_folder.resolve()]
        wrong = judge.verdict(must, code, state, "\n".join(run.err))
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
        """The first run left no checkpoint: so short was it."""
        return len(folders) == 2 and not (folders[0] / "checkpoint.safetensors").exists()

    def _do(self, deed: Deed, run: Running) -> Process | None:
        """The process it was done to; None for a disk, and where the run is over already."""
        if deed.kind == "disk":
            self._fill()
            return None
        found = of_role(run.inventory(), deed.victim)
        if not found:
            return None
        victim = random.Random(deed.number).choice(found)
        with contextlib.suppress(ProcessLookupError):
            victim.kill(signal.SIGKILL if deed.kind == "kill" else signal.SIGSTOP)
            if deed.kind == "stop" and deed.victim in ("launcher", "fanout"):
                time.sleep(5.0)  # longer than any silence is borne, scaled
                victim.kill(signal.SIGCONT)
        return victim

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


def undisturbed(folder: Path) -> tuple[float, float]:
    """How far off an undisturbed run ends at most, and how long three ranks train, in seconds. More ranks average more
    often per sample, and come less far.
    """
    box, results = Box(folder), []
    try:
        for ranks in (RANKS, max(AFTERWARDS)):
            run = box.project.start(f"@of{ranks}", "train", env=ENV)
            run.done(END)
            results.append(run.result())
        return max(result["epochs"][-1]["eval"]["off"] for result in results), results[0]["wall_s"]
    finally:
        box.project.end()


def can_mount() -> bool:
    return os.geteuid() == 0


def _free_port() -> int:
    """Below the range that the kernel gives to whoever dials: a port of those may be taken a moment later."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
