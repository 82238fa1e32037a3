"""The Docker engine that would run a host's ranks."""

from __future__ import annotations

import shutil
import subprocess

from flodl_probe.facts import Docker
from flodl_wire import deadlines

_PATIENCE = 10.0


def read() -> Docker:
    if shutil.which("docker") is None:
        return Docker(why="docker is not installed")
    version, why = _said("docker", "version", "--format", "{{.Server.Version}}")
    compose, _ = _said("docker", "compose", "version", "--short")
    return Docker(version, why, compose is not None, shutil.which("nvidia-ctk") is not None)


def _said(*command: str) -> tuple[str | None, str]:
    """(what it printed, "") or (None, its last words)."""
    patience = deadlines.deadline(_PATIENCE)
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return None, f"it gave no answer in {patience:.0f} s"
    except OSError as err:
        return None, err.strerror or str(err)
    text = done.stdout.decode("utf-8", "replace").strip()
    if done.returncode or not text:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return None, words[-1] if words else f"exit {done.returncode}"
    return text, ""
