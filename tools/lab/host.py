"""One host of a lab: a network namespace, a process that holds its mounts and name, a link to the bridge, an sshd."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path

# What the processor needs for correct sums must reach a login by ssh too.
PASSED_ON = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")

# `ip netns exec` has made a mount namespace and unshare a UTS one. ssh and sshd take the home from passwd whatever HOME
# says, so each host has a passwd of its own; the boot id is what tells two boxes apart, so each host has one.
ANCHOR = """
hostname "$1" && mount --bind "$2/passwd" /etc/passwd && mount --bind "$2/hosts" /etc/hosts &&
mount --bind "$2/boot_id" /proc/sys/kernel/random/boot_id && echo up && exec sleep infinity
"""


@dataclass(frozen=True)
class Link:
    """The cable between a host and the bridge: `rate` as tc writes it ("50mbit"), `delay_s` in each direction."""

    rate: str | None = None
    delay_s: float = 0.0


def sh(*command: object, check: bool = True) -> str:
    """Run a set-up command; its stdout. Its stderr is in the error when it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


@dataclass
class Host:
    """Set up by `up`; `command` then gives the argv that runs something on it."""

    name: str
    address: str
    tag: str  # of the lab: makes every kernel name unique
    index: int
    home: Path
    link: Link = field(default_factory=Link)
    anchor: int = 0  # pid whose mount and UTS namespaces are the host's
    wire: int = 0  # pid of the delaying process, 0 without one

    @property
    def namespace(self) -> str:
        return f"lab{self.tag}-{self.name}"

    @property
    def port(self) -> str:
        """The bridge's end of the link."""
        return f"lab{self.tag}p{self.index}"

    def up(self, bridge: str, prefix: int) -> None:
        """Namespace, link and mounts; the home must hold .ssh and hosts already."""
        sh("ip", "netns", "add", self.namespace)
        sh("ip", "-n", self.namespace, "link", "set", "lo", "up")
        self._plug(bridge)
        sh("ip", "-n", self.namespace, "addr", "add", f"{self.address}/{prefix}", "dev", "eth0")
        sh("ip", "-n", self.namespace, "link", "set", "eth0", "up")
        if self.link.rate:
            shape = ["root", "tbf", "rate", self.link.rate, "burst", "256kb", "latency", "50ms"]
            sh("tc", "-n", self.namespace, "qdisc", "add", "dev", "eth0", *shape)
            sh("tc", "qdisc", "add", "dev", self.port, *shape)
        (self.home / "boot_id").write_text(f"{uuid.uuid4()}\n")
        (self.home / "passwd").write_text(_passwd(self.home))
        command = ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", ANCHOR, "sh"]
        self.anchor = self._start([*command, self.name, str(self.home)])

    def _plug(self, bridge: str) -> None:
        inner = f"lab{self.tag}i{self.index}"
        if self.link.delay_s:
            self.wire = self._start([sys.executable, "-m", "tools.lab.wire", inner, self.port, str(self.link.delay_s)])
            sh("ip", "link", "set", inner, "netns", self.namespace, "name", "eth0")
        else:
            sh("ip", "link", "add", self.port, "type", "veth", "peer", "name", "eth0", "netns", self.namespace)
        sh("ip", "link", "set", self.port, "master", bridge, "up")

    def _start(self, command: list[str]) -> int:
        """Start something that says "up" when it is; its pid. It outlives us: whoever takes the lab down ends it."""
        root = Path(__file__).resolve().parents[2]
        with (self.home / "log").open("a") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=root,
                start_new_session=True,
            )
        assert process.stdout is not None
        with process.stdout:
            if process.stdout.readline() != "up\n":
                said = (self.home / "log").read_text().strip()
                raise RuntimeError(f"{self.name}: {' '.join(command[:4])} … ended with {process.wait()}: {said}")
        process.returncode = 0  # its end is not ours to report
        return process.pid

    def command(self, *command: object, cwd: Path | str | None = None) -> list[str]:
        """The argv that runs `command` on this host, in its home or in `cwd`. nsenter execs: the pid stays."""
        enter = ["nsenter", f"--target={self.anchor}", "--net", "--mount", "--uts", f"--wd={cwd or self.home}", "--"]
        return [*enter, *(str(word) for word in command)]

    def environment(self) -> dict[str, str]:
        """Ours, with this host's home."""
        return {**os.environ, "HOME": str(self.home), "USER": "root", "LOGNAME": "root"}

    def sshd(self, port: int, options: list[str]) -> None:
        """One more sshd."""
        passed = [f"{name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
        passed += [option.removeprefix("SetEnv=") for option in options if option.startswith("SetEnv=")]
        settings = [
            f"Port={port}",
            f"HostKey={self.home / 'hostkey'}",
            "StrictModes=no",
            "PermitRootLogin=yes",
            f"PidFile={self.home / f'sshd-{port}.pid'}",
            "Subsystem=sftp internal-sftp",
            "MaxStartups=100",
            *([f"SetEnv={' '.join(passed)}"] if passed else []),  # of several, sshd takes the first alone
            *(option for option in options if not option.startswith("SetEnv=")),
        ]
        Path("/run/sshd").mkdir(exist_ok=True)
        sh(
            *self.command(
                "/usr/sbin/sshd", "-f", "/dev/null", *(word for option in settings for word in ("-o", option))
            )
        )

    def pids(self) -> list[int]:
        """Every process whose network is this host's, the anchor and sshd included."""
        return [int(pid) for pid in sh("ip", "netns", "pids", self.namespace, check=False).split()]

    def down(self) -> None:
        """End every process of the host, then its namespace and links. Never fails."""
        for _ in range(200):  # a process may have forked while we looked
            if not (pids := self.pids()):
                break
            for pid in pids:
                _kill(pid)
        for pid in filter(None, (self.wire, self.anchor)):
            _kill(pid)
            with contextlib.suppress(ChildProcessError):  # another process started it
                os.waitpid(pid, 0)
        sh("ip", "netns", "del", self.namespace, check=False)
        sh("ip", "link", "del", self.port, check=False)


def _passwd(home: Path) -> str:
    """This machine's, with `home` for root."""
    lines = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    return "".join(":".join([*f[:5], str(home), *f[6:]] if f[0] == "root" else f) + "\n" for f in lines)


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
