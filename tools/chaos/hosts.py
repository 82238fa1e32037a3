"""A play on three hosts of the lab: a cable is cut, and the others go on where they can."""

from __future__ import annotations

from pathlib import Path

from integration.account import why
from integration.cluster import Cluster, three
from integration.until import until
from tools.chaos import judge
from tools.chaos.box import END, ENV, EPOCHS, SAMPLES, STALL, recording, training, wait_for
from tools.chaos.deeds import Deed, expected
from tools.lab import Lab


def play(deed: Deed, undisturbed: float, folder: Path) -> list[str]:
    """What was not as it must be. tower has ranks 0 and 1, attic rank 2."""
    records = [folder / "record-0"]
    with Lab(three()) as lab:
        cluster = Cluster(lab)
        try:
            cluster.write({"train": training(deed.mode, STALL * 10)})
            run = cluster.start("@cluster", "train", *recording(records[0]), env=ENV)
            run.phase("training", "done", within=END)
            wait_for(deed.moment, records[0], lambda: run.process.poll() is not None)
            lab.cut(deed.victim)
            code = run.wait(END)
            _nothing_left(cluster, expected(deed).bound)
            folders = [run.run_folder.resolve()]
            wrong = judge.verdict(expected(deed), code, run.state(), "\n".join(run.err))
            wrong += judge.account(expected(deed), code, run.state(), why(cluster))
            if code != 0:
                lab.heal(deed.victim)
                records.append(folder / "record-1")
                run = cluster.start("--resume=auto", "@cluster", "train", *recording(records[1]), env=ENV)
                run.done(END)
                folders.append(run.run_folder.resolve())
            wrong += judge.merged(folders, records, None, EPOCHS, SAMPLES)
            return wrong + judge.learned(run.result(), undisturbed)
        except AssertionError as error:
            return [str(error).split("\n--- stdout")[0][:400]]
        finally:
            cluster.end()


def _nothing_left(cluster: Cluster, within: float) -> None:
    """Of the run: the session of sshd behind a cut cable waits for TCP, and is nobody's process."""

    def ours() -> list[str]:
        return [str(process) for process in cluster.inventory() if not process.argv[0].startswith("sshd")]

    until(lambda: not ours(), within, lambda: "still there: " + "; ".join(ours()))
