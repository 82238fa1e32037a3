"""The hub as our child: its spec on stdin, a socket pair for everything else."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from flodl_window.child import Child
from flodl_window.formation import Charter
from flodl_wire.specs import HubSpec

MAX_SOCKET_PATH = 107  # bytes of a Unix socket's path


def make_socket_dir(run: str) -> Path:
    """A 0700 folder with a path short enough for a Unix socket: the user's runtime folder where it fits, else the
    temp folder.
    """
    for root in (os.environ.get("XDG_RUNTIME_DIR"), tempfile.gettempdir(), "/tmp"):
        if root and os.access(root, os.W_OK | os.X_OK) and len(os.fsencode(root)) < MAX_SOCKET_PATH - 60:
            return Path(tempfile.mkdtemp(prefix=f"flodl-{run[-4:]}-", dir=root))
    return Path(tempfile.mkdtemp(prefix="flodl-"))


def start(
    command: list[str],
    charter: Charter,
    run_dir: Path,
    socket_dir: Path,
    said: Callable[[str], None],
    ended: Callable[[str], None],
) -> tuple[Child, socket.socket]:
    """Start it; returns the child and our end of the pair."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    spec = HubSpec(
        run=charter.run,
        run_dir=str(run_dir),
        socket_dir=str(socket_dir),
        mode=charter.mode,
        salt_hex=charter.salt_hex,
        keyed=True,  # at an open door too: everybody who is in was given the salt, sealed
    )
    try:
        child = Child(
            [*command, "--pair", str(theirs.fileno())],
            line=lambda stream, text: said(text),
            ended=ended,
            first_line=msgspec.json.encode(spec) + b"\n",
            keep_stdin=False,
            pass_fds=(theirs.fileno(),),
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return child, ours


def remove_socket_dir(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
