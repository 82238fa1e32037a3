"""Runs that are driven by hand to an end, and what `fdl why` says of them: ``python window_accounts.py`` writes it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from window_worlds import Driven, cluster, hello

from flodl_window import events as ev
from flodl_window.aftermath import account, why_text
from flodl_window.aftermath.masking import Mask, secret_values
from flodl_window.aftermath.record import Record
from flodl_window.aftermath.run_files import RunFiles
from flodl_window.snapshot import snapshot
from flodl_wire.hub_messages import Finished, HubFailed, RankIn, RelayIn, TrainingBegan
from flodl_wire.join_messages import Bye, HostFault, RankExited, RelayExited
from flodl_wire.result import RunResult
from flodl_wire.specs import FanoutEvent

FOLDER = Path(__file__).parent / "accounts"
FACTS: dict[str, Any] = {
    "command": ["python", "train.py", "--token", "***"],
    "mode": "cpu_cadence",
    "environment": {"OMP_NUM_THREADS": "4"},
}


class Remembered(Driven):
    """A driven run whose window keeps its memory."""

    def __init__(self, *devices: object) -> None:
        self.record = Record(0.0, Mask(secret_values({"DB_PASSWORD": "swordfish"})))
        self.rows = [self.record.opened(FACTS)]
        super().__init__(cluster(*devices or ("cpu:2", "cpu:1")))

    def do(self, event: ev.Event) -> list[ev.Effect]:
        if not isinstance(event, ev.Ticked):
            self.rows += self.record.note(event, self.run, self.now)
        out = super().do(event)
        self.rows += self.record.verdict(self.run, self.now)
        return out

    def trains(self) -> Remembered:
        """Two hosts, three ranks, in training at 10 s."""
        self.hello(hello("node-a", 2, python="3.11.2", torch_version="2.9.0+cpu", cores=8))
        self.hello(hello("node-b", 1, python="3.10.1", torch_version="2.9.0+cpu", cores=4))
        self.now = 10.0
        for host in ("node-a", "node-b"):
            self.hub(RelayIn(host))
        for rank in range(3):
            self.hub(RankIn(rank))
        self.hub(TrainingBegan("cpu_cadence on 3 ranks"))
        return self

    def files(self, lives: bool | None = False) -> RunFiles:
        state = msgspec.json.decode(msgspec.json.encode(snapshot(self.run, self.now)))
        rows = msgspec.json.decode(msgspec.json.encode(self.rows))
        return RunFiles(Path("/p/runs/20260101-000000-abcd"), state, {}, rows, lives)

    def account(self, lives: bool | None = False, **logs: list[str]) -> account.Account:
        return account.make(self.files(lives), lambda name: logs.get(name.replace("-", "_"), []))


def a_rank_is_killed() -> account.Account:
    run = Remembered().trains()
    run.at(42.0)
    run.says("node-b", RankExited(2, signal=9, tail=["step 40", "step 41"]))
    run.at(43.0)
    run.hub(Finished(RunResult("r", "cpu_cadence", 3)))  # it may go on with the others
    for host, ranks in (("node-a", (0, 1)), ("node-b", ())):
        for rank in ranks:
            run.says(host, RankExited(rank, 0))
        run.says(host, Bye())
        run.gone(host)
    run.at(46.0)
    return run.account()


def a_rank_exits() -> account.Account:
    run = Remembered().trains()
    run.at(42.0)
    tail = ["connecting as swordfish", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB"]
    run.says("node-b", RankExited(2, 1, tail=tail))
    run.says("node-a", RankExited(0, signal=15, ordered=True))
    run.says("node-a", RelayExited(signal=15))
    return run.account(node_a_0=["step 1", "\x1b[31mstep\x1b[0m 2", "‮evil"], node_b_2=["…", *tail])


def a_host_falls_silent() -> account.Account:
    run = Remembered().trains()
    run.says("node-a", HostFault("keeper-died", "the keeper on node-a ended", "killed by signal 9"))
    run.hub(HubFailed("below-tolerance", "2 ranks are lost", "max_failure is 1"))
    run.at(43.0)
    return run.account()


def an_echo_comes_first() -> account.Account:
    run = Remembered().trains()
    run.at(42.0)
    run.says("node-a", RankExited(0, 1, tail=["RuntimeError: Connection reset by peer"]))
    run.at(42.5)
    run.says("node-b", RankExited(2, signal=7, tail=["loading a batch"]))
    return run.account()


def ctrl_c() -> account.Account:
    run = Remembered().trains()
    run.do(ev.Interrupted("SIGINT"))
    return run.account()


def the_launcher_is_killed() -> account.Account:
    run = Remembered().trains()
    run.at(42.0)
    return run.account(node_a_0=["step 41"])


def a_host_cannot_be_entered() -> account.Account:
    run = Remembered()
    run.do(ev.FanoutReported(FanoutEvent("started", "node-b", command="ssh node-b flodl-agent run")))
    run.do(
        ev.FanoutReported(FanoutEvent("exited", "node-b", code=255, text="root@node-b: Permission denied (publickey)."))
    )
    run.at(2.0)
    return run.account()


def it_still_runs() -> account.Account:
    return Remembered().trains().account(lives=True)


ENDS: dict[str, tuple[Callable[[], account.Account], str]] = {
    "killed_and_survived": (a_rank_is_killed, "degraded"),
    "exit": (a_rank_exits, "failed"),
    "keeper": (a_host_falls_silent, "failed"),
    "echo": (an_echo_comes_first, "failed"),
    "ctrl_c": (ctrl_c, "interrupted"),
    "crash": (the_launcher_is_killed, "crashed"),
    "ssh": (a_host_cannot_be_entered, "failed"),
    "running": (it_still_runs, "running"),
}

if __name__ == "__main__":
    for name, (play, _) in ENDS.items():
        (FOLDER / f"{name}.txt").write_text(why_text.render(play()), encoding="utf-8")
