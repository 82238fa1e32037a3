"""A real sshd on loopback, for the tests that need one."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
from pathlib import Path

from agent_fakes import wait_until

from flodl_wire.config import Ssh


class Sshd:
    """A real sshd on a high port of loopback, with a key of its own; the box is what it offers as `~/.local`."""

    def __init__(self, root: Path, port: int) -> None:
        root.mkdir(mode=0o700)
        self.root = root
        self.port = port
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name], check=True)
        self.authorize()
        known = f"[127.0.0.1]:{port} {(root / 'host.pub').read_text()}"
        (root / "known").write_text(known)
        config = f"""
            ListenAddress 127.0.0.1:{port}
            HostKey {root / "host"}
            AuthorizedKeysFile {root / "authorized"}
            PidFile none
            StrictModes no
            UsePAM no
            PermitRootLogin yes
            PasswordAuthentication no
            AcceptEnv MARK
        """
        (root / "config").write_text(config)
        Path("/run/sshd").mkdir(exist_ok=True)
        self.log = (root / "log").open("wb")
        self.process = subprocess.Popen(
            [str(shutil.which("sshd")), "-D", "-e", "-f", root / "config"], stderr=self.log, start_new_session=True
        )

    def authorize(self, restrictions: str = "") -> None:
        """Let the user's key in, under `restrictions` as authorized_keys writes them."""
        line = f"{restrictions} {(self.root / 'user.pub').read_text()}".lstrip()
        (self.root / "authorized").write_text(line)

    def ready(self) -> None:
        def answers() -> bool | None:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return True
            except ConnectionRefusedError:
                return None

        wait_until(answers, "sshd")

    def road(self, *options: str, key: str = "user") -> Ssh:
        fixed = [f"UserKnownHostsFile={self.root / 'known'}", "IdentitiesOnly=yes", "SendEnv=MARK"]
        return Ssh("127.0.0.1", self.port, getpass.getuser(), str(self.root / key), [*options, *fixed])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self.log.close()
