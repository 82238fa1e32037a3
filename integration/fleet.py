"""A standing fleet in a lab: desk serves published runs and opens windows, tower and attic hold a key and know where to
pull from.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from integration.cluster import PORT, Cluster
from integration.processes import MARK
from integration.project import BIN, RANKS
from integration.running import Running
from integration.until import until
from tools.lab.host import sh

RRSYNC = "/usr/bin/rrsync"
ARGS = ("--epochs", "4", "--samples", "120")
PROGRAM = "import plain_rank, which\nprint('tree', which.TREE, flush=True)\nraise SystemExit(plain_rank.main())\n"


class Fleet:
    """`source` is what gets published; the key on each worker may read what is served and reach the window."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.lab = cluster.lab
        self.source = self.lab.home("desk") / "my training"
        self.served = self.lab.home("desk") / ".flodl/run"
        self.source.mkdir()
        shutil.copy(RANKS / "plain_rank.py", self.source)
        (self.source / "train.py").write_text(PROGRAM)
        self.tree("one")
        keys = self.lab.home("desk") / ".ssh/authorized_keys"
        for host in ("tower", "attic"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key(host))
            line = f"{guard(self.served)} {self.key(host).with_suffix('.pub').read_text()}"
            keys.write_text(f"{keys.read_text().rstrip()}\n{line}")

    def key(self, host: str) -> Path:
        return self.lab.home(host) / "farm_key"

    def copy(self, host: str) -> Path:
        return self.lab.home(host) / ".flodl/source/tree"

    def tree(self, name: str) -> None:
        """What the published program says that it is."""
        (self.source / "which.py").write_text(f"TREE = {name!r}\n")

    def open_door(self, **join: Any) -> None:
        """A window that only sshd leads to, for whoever comes."""
        run = " ".join(["python", str(RANKS / "plain_rank.py"), *ARGS])
        window = {"discovery": True, "tunnel_only": True, "min_rank_start": 2, "join_timeout": 60, **join}
        controller = {"host": "127.0.0.1", "path": str(self.cluster.folder), "join": window}
        self.cluster.write({"train": {"run": run, "mode": "cpu_cadence"}}, {"controller": controller})

    def train(self) -> Running:
        run = self.cluster.start("@cluster", "train")
        until(lambda: run.state(), 30, lambda: run.text)
        return run

    def publish_words(self, *words: str) -> list[str]:
        return ["publish", f"file://{self.source}", "--bin", "train.py", "--json", *words, "--", *ARGS]

    def publish(self, *words: str) -> dict[str, Any]:
        done = self.lab.run("desk", BIN / "fdl", *self.publish_words(*words), cwd=self.lab.home("desk"), timeout=60)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def stand_by(self, host: str, *words: object, env: dict[str, str] | None = None) -> Running:
        """`fdl join --persist` on a box that holds a key, and no project."""
        road = ("--ssh", "root@desk", "--identity", self.key(host), "--devices", "cpu:1", "--persist")
        return self.join(host, *road, "--source", "rsync://root@desk:/tree", *words, env=env)

    def join(self, host: str, *words: object, env: dict[str, str] | None = None) -> Running:
        process = self.lab.popen(
            host,
            BIN / "fdl",
            "join",
            *words,
            cwd=self.lab.home(host),
            env={MARK: "lab", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            start_new_session=True,
        )
        typed = Running(process, self.cluster.folders[host], lambda: self.cluster.on(host))
        self.cluster.runs.append(typed)
        return typed


def guard(served: object) -> str:
    """What authorized_keys says in front of a worker's key: read what is served, reach the window, nothing else."""
    return f'restrict,port-forwarding,permitopen="127.0.0.1:{PORT}",command="{RRSYNC} -ro {served}"'


def said(run: Running, words: str) -> int:
    """How many of its lines hold them."""
    return sum(words in line for line in [*run.out, *run.err])
