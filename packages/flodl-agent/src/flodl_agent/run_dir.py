"""The 0700 folder in which one run's Unix sockets live on this host."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

_SOCKET_PATH = 107  # bytes the kernel takes for a Unix socket's path
_ROOM = len("/flodl-12345678/relay.sock")


def make_run_dir() -> str:
    """A new folder, ours alone, short enough for sockets: under $XDG_RUNTIME_DIR, else the temp folder, else /tmp."""
    for candidate in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        usable = candidate and Path(candidate).is_dir() and os.access(candidate, os.W_OK)
        if usable and len(os.fsencode(str(candidate))) + _ROOM <= _SOCKET_PATH:
            return tempfile.mkdtemp(prefix="flodl-", dir=candidate)
    return tempfile.mkdtemp(prefix="flodl-")
