"""A project in a folder of its own, and `fdl` typed in it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from integration.processes import MARK, Process, marked
from integration.running import Running

BIN = Path(sys.executable).parent
RANKS = Path(__file__).parent / "ranks"


def rank_command(script: str, *words: str) -> str:
    """The `run:` line of a script in ranks/ with its fixed arguments."""
    return " ".join(["python", str(RANKS / script), *words])


class Project:
    """A folder with an fdl.yml of `commands`, and a one-box overlay `one` with `ranks` CPU ranks on `port`.

    Manifests are written as JSON, which is YAML.
    """

    def __init__(self, folder: Path, port: int, commands: dict[str, dict[str, Any]], ranks: int = 2) -> None:
        self.folder = folder
        self.port = port
        self.mark = f"mark-{uuid.uuid4().hex}"
        self.runs: list[Running] = []
        self.write("fdl.yml", {"commands": {name: {"cluster": True, **command} for name, command in commands.items()}})
        self.write("fdl.one.yml", {"cluster": self.one_box(ranks)})

    def one_box(self, ranks: int) -> dict[str, Any]:
        here = {"host": socket.gethostname(), "local_devices": f"cpu:{ranks}", "path": str(self.folder)}
        return {"controller": {"host": "127.0.0.1", "port": self.port, "path": str(self.folder)}, "workers": [here]}

    def write(self, name: str, document: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(json.dumps(document, ensure_ascii=False))

    def environment(self, **extra: str) -> dict[str, str]:
        return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", MARK: self.mark, **extra}

    def start(self, *words: str, env: dict[str, str] | None = None) -> Running:
        """Type `fdl WORDS` in the folder."""
        process = subprocess.Popen(
            [BIN / "fdl", *words],
            cwd=self.folder,
            env=self.environment(**(env or {})),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # as a terminal's foreground job: a group of its own
        )
        run = Running(process, self.folder, self.inventory)
        self.runs.append(run)
        return run

    def inventory(self) -> list[Process]:
        return marked(self.mark)

    def fdl(self, *words: str, within: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Type `fdl WORDS` and wait for its end: for commands that start no run."""
        return subprocess.run(
            [BIN / "fdl", *words], cwd=self.folder, env=self.environment(), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, timeout=within, check=False,
        )  # fmt: skip

    def end(self) -> None:
        for run in self.runs:
            run.end()
