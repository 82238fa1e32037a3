"""What only a login shell finds: a command that sshd runs has a shorter PATH than the user's own."""

from __future__ import annotations

import os
import subprocess

from flodl_wire import deadlines

_PATIENCE = 5.0  # seconds; a profile may do a lot


def asked(name: str) -> str | None:
    """Where a login shell finds the executable `name`; None when it does not. Never raises."""
    shell = os.environ.get("SHELL") or "/bin/sh"
    try:
        done = subprocess.run(
            [shell, "-lc", f"command -v {name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadlines.deadline(_PATIENCE),
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.decode("utf-8", "replace").strip().splitlines()  # a profile may print a banner first
    return lines[-1] if lines and os.access(lines[-1], os.X_OK) else None


def by_ssh() -> bool:
    """True when this process was started through sshd."""
    return "SSH_CONNECTION" in os.environ
