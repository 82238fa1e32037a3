"""The farm's ed25519 pair, made by ssh-keygen (it is there wherever ssh is), and the token."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass

from flodl_wire.faults import Broken, Refused


@dataclass(frozen=True)
class Pair:
    private: str  # as ssh-keygen writes it
    public: str  # one line, no end


def make(label: str) -> Pair:
    """A fresh pair without a passphrase: nobody sits at a worker. Raises Fault."""
    program = shutil.which("ssh-keygen")
    if program is None:
        raise Refused(
            "no-tool", "cannot make the farm's key", "there is no ssh-keygen here", "install OpenSSH's client"
        )
    with tempfile.TemporaryDirectory(prefix="flodl-key-") as folder:  # 0700
        path = os.path.join(folder, "key")
        words = [program, "-q", "-t", "ed25519", "-N", "", "-C", f"flodl-farm-{label}", "-f", path]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode:
            said = done.stderr.strip().splitlines()
            raise Broken("keygen", "cannot make the farm's key", f"ssh-keygen: {said[-1] if said else 'no word'}")
        with open(path, encoding="ascii") as private, open(f"{path}.pub", encoding="ascii") as public:
            return Pair(private.read(), public.read().strip())


def public_of(path: str) -> str:
    """The public key of the private one in `path`, as a pair whose halves differ is told by it. Raises Refused."""
    words = ["ssh-keygen", "-y", "-P", "", "-f", path]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = done.stderr.strip().splitlines()
        raise Refused(
            "bad-key",
            f"cannot use the farm's key {path}",
            f"ssh-keygen: {said[-1] if said else 'no word'}",
            "--regen makes a new one",
        )
    return done.stdout.strip()


def token() -> str:
    """32 hex digits of the system's own entropy; it raises where that cannot be had."""
    return secrets.token_hex(16)
