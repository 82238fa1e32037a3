"""Three hosts of a lab with one project laid out on each: desk types the commands, tower gives two ranks, attic one."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from integration.processes import MARK, Process, among, of_role
from integration.project import BIN
from integration.running import Running
from tools.lab import Lab, Link

HOSTS = ("desk", "tower", "attic")
PORT = 1337  # each lab has a network of its own: nobody else holds it


class Cluster:
    """`lab` must be up. The project's path differs from host to host, as it does in life."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.runs: list[Running] = []
        self.folders = {host: lab.home(host) / f"{host}s-project" for host in HOSTS}
        for folder in self.folders.values():
            folder.mkdir()
            (folder / ".venv").symlink_to(BIN.parent)
        self._idle = {host: set(lab.pids(host)) for host in HOSTS}

    @property
    def folder(self) -> Path:
        """Where the commands are typed."""
        return self.folders["desk"]

    def overlay(self, **changes: Any) -> dict[str, Any]:
        """The `cluster:` block: tower with ranks 0 and 1, attic with rank 2. `changes`: more keys of both workers."""
        workers = [
            {
                "host": host,
                "local_devices": devices,
                "path": str(self.folders[host]),
                "nccl_socket_ifname": "eth0",
                **changes,
            }
            for host, devices in (("tower", "cpu:2"), ("attic", "cpu:1"))
        ]
        return {"controller": {"host": self.lab.address("desk"), "path": str(self.folder)}, "workers": workers}

    def write(self, commands: Mapping[str, dict[str, Any]], overlay: dict[str, Any] | None = None) -> None:
        """fdl.yml on every host (they must be the same), fdl.cluster.yml where the commands are typed."""
        manifest = {"commands": {name: {"cluster": True, **command} for name, command in commands.items()}}
        for folder in self.folders.values():
            (folder / "fdl.yml").write_text(json.dumps(manifest))
        (self.folder / "fdl.cluster.yml").write_text(json.dumps({"cluster": overlay or self.overlay()}))

    def start(self, *words: str, env: dict[str, str] | None = None) -> Running:
        process = self.lab.popen(
            "desk",
            self.folder / ".venv/bin/fdl",
            *words,
            cwd=self.folder,
            env={MARK: "lab", **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            errors="replace",
            start_new_session=True,
        )
        run = Running(process, self.folder, self.inventory)
        self.runs.append(run)
        return run

    def fdl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.lab.run("desk", self.folder / ".venv/bin/fdl", *words, cwd=self.folder, timeout=60)

    def inventory(self) -> list[Process]:
        """What runs on the hosts and did not when the lab was idle."""
        return [process for host in HOSTS for process in self.on(host)]

    def on(self, host: str) -> list[Process]:
        return among([pid for pid in self.lab.pids(host) if pid not in self._idle[host]])

    def one(self, host: str, role: str) -> Process:
        found = of_role(self.on(host), role)
        assert len(found) == 1, [str(process) for process in self.on(host)]
        return found[0]

    def end(self) -> None:
        for host in HOSTS:
            self.lab.heal(host)
        for run in self.runs:
            run.end()


def three(link: Link | None = None) -> dict[str, Link]:
    """The hosts for a Lab; `link` is that of the two workers."""
    return {"desk": Link(), "tower": link or Link(), "attic": link or Link()}
