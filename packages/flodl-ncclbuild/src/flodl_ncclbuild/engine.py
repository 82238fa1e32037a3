"""Asking the container engine whether it answers."""

from __future__ import annotations

import shutil
import subprocess
from typing import NamedTuple

from flodl_wire import deadlines

PATIENCE = 15.0  # seconds; Docker Desktop takes some to wake


class Engine(NamedTuple):
    version: str
    rootless: bool  # then root inside is the user outside, and --user would be a stranger


def ask() -> Engine | str:
    """The engine, or why there is none, as a clause."""
    program = shutil.which("docker")
    if program is None:
        return "docker is not installed"
    patience = deadlines.deadline(PATIENCE)
    try:
        answer = subprocess.run(
            [program, "info", "--format", "{{.ServerVersion}} {{json .SecurityOptions}}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the Docker engine did not answer within {patience:.0f} s"
    except OSError as err:
        return f"{program} cannot be run: {err.strerror or err}"
    version, _, security = answer.stdout.decode("utf-8", "replace").strip().partition(" ")
    if answer.returncode or not version:
        said = answer.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"the Docker engine does not answer: {said[-1].strip()}" if said else "the Docker engine does not answer"
    return Engine(version, "name=rootless" in security)
