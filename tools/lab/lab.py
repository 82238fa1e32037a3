"""The hosts of one lab. Every kernel name carries the lab's tag, so labs of parallel tests never meet."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.lab.host import Host, Link, sh

NEEDED = {
    "ip": "iproute2",
    "tc": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "ssh-keygen": "openssh-client",
}
PREFIX = "flodl-lab-"


def missing() -> str | None:
    """Why no lab can be made here, as a sentence with its way out; None when one can."""
    if os.geteuid() != 0:
        return "network namespaces need root: run this as root"
    lacking = {package for command, package in NEEDED.items() if shutil.which(command) is None}
    if not Path("/usr/sbin/sshd").exists():
        lacking.add("openssh-server")
    return f"install {' '.join(sorted(lacking))}" if lacking else None


class Lab:
    """Hosts by name, up from `with` to its end whatever happens inside.

    `hosts`: names, or names with their links. Addresses are `net`.1, .2, … in that order; labs do not share a network,
    so `net` may be the same in each. `folder` is where homes and keys live; a lab that shall outlive its process is
    given one.
    """

    def __init__(
        self, hosts: Sequence[str] | Mapping[str, Link], net: str = "10.77.0", folder: Path | None = None
    ) -> None:
        links = hosts if isinstance(hosts, Mapping) else {name: Link() for name in hosts}
        self.tag = uuid.uuid4().hex[:5]
        self.folder = folder or Path(tempfile.gettempdir(), PREFIX + self.tag)
        self.owner = 0 if folder else os.getpid()
        self.hosts = {
            name: Host(name, f"{net}.{index + 1}", self.tag, index, self.folder / name, link)
            for index, (name, link) in enumerate(links.items())
        }

    @property
    def bridge(self) -> str:
        return f"lab{self.tag}br"

    def __enter__(self) -> Lab:
        sweep()
        atexit.register(self.down)
        try:
            self.up()
        except BaseException:
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()
        atexit.unregister(self.down)

    def up(self) -> None:
        self.folder.mkdir(parents=True)
        self._remember()
        key = self.folder / "key"
        sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
        sh("ip", "link", "add", self.bridge, "type", "bridge")
        sh("ip", "link", "set", self.bridge, "up")
        table = "127.0.0.1 localhost\n::1 localhost\n" + "".join(f"{h.address} {h.name}\n" for h in self.hosts.values())
        for host in self.hosts.values():
            keys = host.home / ".ssh"
            keys.mkdir(parents=True)
            keys.chmod(0o700)
            shutil.copy(f"{key}.pub", keys / "authorized_keys")
            shutil.copy(key, keys / "id_ed25519")
            (host.home / "hosts").write_text(table)
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host.home / "hostkey")
            host.up(self.bridge, 24)
            self._remember()
            host.sshd(22, [])
        known = "".join(f"{h.name},{h.address} {(h.home / 'hostkey.pub').read_text()}" for h in self.hosts.values())
        for host in self.hosts.values():
            (host.home / ".ssh" / "known_hosts").write_text(known)

    def down(self) -> None:
        """Everything of this lab away, also after a start that failed half-way. Never fails."""
        for host in self.hosts.values():
            host.down()
        sh("ip", "link", "del", self.bridge, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def home(self, host: str) -> Path:
        return self.hosts[host].home

    def address(self, host: str) -> str:
        return self.hosts[host].address

    def run(
        self, host: str, *command: object, cwd: Path | None = None, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run `command` on `host` and wait; options are subprocess.run's, text and captured unless said otherwise."""
        options = {"text": True, "capture_output": "stdout" not in options, **self._enter(host, options)}
        return subprocess.run(self.hosts[host].command(*command, cwd=cwd), check=False, **options)

    def popen(self, host: str, *command: object, cwd: Path | None = None, **options: Any) -> subprocess.Popen[str]:
        """Start `command` on `host`; the pid is the command's own."""
        options = {"text": True, **self._enter(host, options)}
        return subprocess.Popen(self.hosts[host].command(*command, cwd=cwd), **options)

    def sshd(self, host: str, port: int, *options: str) -> None:
        """One more sshd on `host`, with options as sshd_config spells them ("AllowTcpForwarding=no")."""
        self.hosts[host].sshd(port, list(options))

    def pids(self, host: str) -> list[int]:
        return self.hosts[host].pids()

    def cut(self, host: str) -> None:
        """Pull the cable: frames are lost in silence, both ways."""
        sh("ip", "link", "set", self.hosts[host].port, "down")

    def heal(self, host: str) -> None:
        sh("ip", "link", "set", self.hosts[host].port, "up")

    def _enter(self, host: str, options: dict[str, Any]) -> dict[str, Any]:
        return {**options, "env": {**self.hosts[host].environment(), **(options.get("env") or {})}}

    def _remember(self) -> None:
        """What another process needs to attach, and the sweep to know whether we live."""
        hosts = {name: {**asdict(host), "home": str(host.home)} for name, host in self.hosts.items()}
        (self.folder / "lab.json").write_text(json.dumps({"tag": self.tag, "owner": self.owner, "hosts": hosts}))

    @classmethod
    def attach(cls, folder: Path) -> Lab:
        """A lab that another process put up."""
        memory = json.loads((folder / "lab.json").read_text())
        lab = cls([], folder=folder)
        lab.tag, lab.owner = memory["tag"], memory["owner"]
        for name, host in memory["hosts"].items():
            lab.hosts[name] = Host(**{**host, "home": Path(host["home"]), "link": Link(**host["link"])})
        return lab


def sweep() -> None:
    """Take down labs whose owner died without doing so."""
    for folder in Path(tempfile.gettempdir()).glob(PREFIX + "*"):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            lab = Lab.attach(folder)
            if lab.owner and not Path(f"/proc/{lab.owner}").exists():
                lab.down()
