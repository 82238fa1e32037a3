"""Everything that needs a GPU, in turn. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, Any

from tools.gpu.executables import ROOT, lay_out, sources

NO_GPU = 3
DIGITS = ROOT / "docs" / "examples" / "digits"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tools.gpu", description="What can be shown on a GPU alone.")
    made.add_argument("--out", type=Path, default=Path("build/gpu"), help="folder for the record (default build/gpu)")
    return made


class Parts:
    """Runs one part after the other and writes each down. `environment`: this checkout in front."""

    def __init__(self, out: Path, log: IO[str]) -> None:
        self.out, self._log = out, log
        self.found: dict[str, Any] = {}
        path = f"{out / 'bin'}:{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "PYTHONPATH": ":".join(sources()), "PYTHONUNBUFFERED": "1"}

    def run(self, name: str, command: list[str], *, cwd: Path = ROOT, within: float = 150.0) -> str:
        """Its standard output; what it exited with and how long it took stand in the record."""
        began = time.monotonic()
        try:
            done = subprocess.run(
                command, cwd=cwd, env=self.environment, capture_output=True, text=True, timeout=within, check=False
            )
            code, text = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired as late:
            code, text = 124, f"not done after {late.timeout:.0f} s"
            done = None
        self._log.write(f"--- {name}: {' '.join(command)}\n{text}\n")
        self._log.flush()
        self.found[name] = {"exit": code, "seconds": round(time.monotonic() - began, 1), "last": text[-400:]}
        print(f"{name}: exit {code}", flush=True)
        self.write()
        return done.stdout if done else ""

    def write(self) -> None:
        (self.out / "gpu.json").write_text(json.dumps(self.found, indent=2) + "\n")


def project(folder: Path, hosts: dict[str, Any]) -> Path:
    """The digits example on hosts that are all this very box."""
    shutil.copytree(DIGITS, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    workers = [
        {"host": host, "local_devices": devices, "path": str(folder), "nccl_socket_ifname": "lo"}
        for host, devices in hosts.items()
    ]
    cluster = {"controller": {"host": "127.0.0.1", "path": str(folder)}, "workers": workers}
    (folder / "fdl.box.yml").write_text(json.dumps({"cluster": cluster}))
    return folder


def main(argv: list[str] | None = None) -> int:
    out = parser().parse_args(argv).out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    asked = subprocess.run(
        [sys.executable, "-c", "import torch; print(torch.cuda.is_available(), torch.__version__)"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if not asked.stdout.startswith("True"):
        print(f"no GPU here that torch can use ({asked.stdout.strip() or asked.stderr.strip()[-200:]})")
        return NO_GPU
    lay_out(out / "bin")
    with (out / "gpu.log").open("w") as log:
        parts = Parts(out, log)
        parts.found["torch"] = asked.stdout.split()[-1]
        parts.run("tests", [sys.executable, "-m", "pytest", "packages/flodl-planes/tests/with_torch/test_gpu.py", "-q"])
        copies = parts.run("copies", [sys.executable, "-m", "tools.gpu.copies"])
        if copies.strip():
            parts.found["copies"]["measured"] = json.loads(copies.splitlines()[-1])
        mixed = project(out / "mixed", {socket.gethostname(): [0], "localhost": "cpu:1"})
        for mode in ("cpu_cadence", "cpu_async"):
            name = f"a GPU and a processor, {mode}"
            parts.run(name, ["fdl", "--mode", mode, "@box", "digits", "--epochs", "3"], cwd=mixed)
            result = mixed / "runs" / "latest" / "result.json"
            if result.exists():
                parts.found[name]["result"] = json.loads(result.read_text())
        for mode in ("nccl_sync", "nccl_cadence"):
            parts.run(f"one GPU, {mode}", [sys.executable, "-m", "tools.gpu.world_of_one", mode])
        parts.write()
    return int(any(part["exit"] for part in parts.found.values() if isinstance(part, dict)))


if __name__ == "__main__":
    raise SystemExit(main())
