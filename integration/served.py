"""A window whose hosts come by hand, so that each phase lasts as long as a test wants."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import msgspec
from integration.project import BIN, Project, rank_command
from integration.running import Running

from flodl_wire.devices import CpuDevices
from flodl_wire.specs import AgentSpec

TOKEN = "5eed" * 8


class Served:
    """`flodl-window serve` with agents that are started by hand. `end` it."""

    def __init__(self, folder: Path, port: int, *words: str) -> None:
        self.project = Project(folder, port, {}, 1)
        worker = {"local_devices": "cpu:2", "path": str(self.project.folder), "nccl_socket_ifname": "lo"}
        join = {"token": TOKEN, "start": "manual", "min_rank_start": 4, "join_timeout": 600}
        config = {
            "cluster": {
                "controller": {"host": "127.0.0.1", "port": port, "path": str(self.project.folder), "join": join},
                "workers": [{**worker, "host": host} for host in ("attic", "tower")],
            }
        }
        self.project.write("c.json", config)
        command = rank_command("plain_rank.py", "--hostile", *words).split()
        self.agents: list[subprocess.Popen[bytes]] = []
        self.run = self._start(
            BIN / "flodl-window", "serve", "--config", "c.json", "--mode", "cpu_cadence", "--", *command
        )

    def _start(self, *words: Any) -> Running:
        process = subprocess.Popen(
            words, cwd=self.project.folder, env=self.project.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        run = Running(process, self.project.folder, self.project.inventory)
        self.project.runs.append(run)
        return run

    def agent(self, host: str, token: str = TOKEN) -> None:
        spec = AgentSpec(
            host, "127.0.0.1", self.project.port, token, CpuDevices(2), path=str(self.project.folder), roster_host=True
        )
        process = subprocess.Popen(
            [BIN / "flodl-agent", "run"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=self.project.folder, env=self.project.environment(),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
        self.agents.append(process)

    def end(self) -> None:
        self.project.end()
        for agent in self.agents:
            agent.communicate(timeout=20)

    def fire(self) -> None:
        fired = self.project.fdl("start", "--addr", f"127.0.0.1:{self.project.port}")
        assert fired.returncode == 0, fired
