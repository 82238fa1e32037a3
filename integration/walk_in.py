"""`fdl join` typed on a host of the lab that no roster names."""

from __future__ import annotations

import subprocess
from pathlib import Path

from integration.cluster import Cluster
from integration.processes import MARK
from integration.project import BIN, RANKS, Project
from integration.running import Running

PROGRAM = f"python {RANKS / 'plain_rank.py'}"  # its own; the arguments come from the run


def walk_in(cluster: Cluster, host: str, *words: object, env: dict[str, str] | None = None) -> Running:
    """Type `fdl join WORDS` on `host`, in its project. Ends with the cluster at the latest."""
    process = cluster.lab.popen(
        host,
        cluster.folders[host] / ".venv/bin/fdl",
        "join",
        *words,
        cwd=cluster.folders[host],
        env={MARK: "lab", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        errors="replace",
        start_new_session=True,
    )
    typed = Running(process, cluster.folders[host], lambda: cluster.on(host))
    cluster.runs.append(typed)
    return typed


def walk_in_here(made: Project, host: str, *words: object, folder: Path | None = None) -> Running:
    """Type `fdl join WORDS` on this box, under the name `host`, in `folder` (default: the project's own)."""
    where = folder or made.folder
    process = subprocess.Popen(
        [BIN / "fdl", "join", "--devices", "cpu:1", "--host", host, *map(str, words)],
        cwd=where,
        env=made.environment(HOME=str(made.folder.parent)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    typed = Running(process, where, made.inventory)
    made.runs.append(typed)
    return typed


def guard(port: int) -> str:
    """What authorized_keys says in front of a join key: a forward to that port, and nothing else."""
    return f'restrict,port-forwarding,permitopen="127.0.0.1:{port}",command="/usr/sbin/nologin"'


def guarded_key(cluster: Cluster, host: str, port: int) -> Path:
    """A key on `host` that desk's sshd lets in for one thing: a forward to its own `port`."""
    key = cluster.lab.home(host) / "join_key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    keys = cluster.lab.home("desk") / ".ssh/authorized_keys"
    keys.write_text(f"{keys.read_text().rstrip()}\n{guard(port)} {key.with_suffix('.pub').read_text()}")
    return key
