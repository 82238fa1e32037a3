"""What a farm is: its name, the door through which its workers come, and what they find behind it. Pure."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from flodl_wire.address import DEFAULT_PORT, Address
from flodl_wire.faults import Refused
from flodl_wire.join_block import ssh_target

DOORS = {
    "b": "workers pull the published run (rrsync, read-only)",
    "a": "workers mount a data folder (sftp, read-only)",
    "nologin": "workers get the tunnel and nothing else",
}
SSH_PORT = 22  # where people log in: no guard by port goes there, it would confine them too
DOOR_PORT = 2222  # what the wizard proposes
DEFAULT_SERVED = "~/.flodl/run"  # flodl-publish's own default
DEFAULT_DATA = "/flodl/data"  # where a worker mounts data, and where the controller is taken to keep them
DEFAULT_PROGRAM = "train.py"

_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,31}\Z")
_HOST = re.compile(r"[A-Za-z0-9_.:%-]+\Z")


@dataclass(frozen=True)
class Controller:
    """Where workers dial: the sshd of the controller's box."""

    user: str
    host: str  # IPv6 without brackets
    port: int

    def __str__(self) -> str:
        """As --controller takes it."""
        return f"{self.user}@{Address(self.host, self.port)}"

    @property
    def place(self) -> str:
        """`user@host:port` as `rsync://` and `sshfs://` take it; the port only where it is not ssh's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" + (f":{self.port}" if self.port != SSH_PORT else "")


@dataclass(frozen=True)
class Farm:
    """Everything that the files of a farm say. `served` and `data` are absolute paths on the controller."""

    label: str
    root: str  # the project's folder, absolute
    controller: Controller
    door: str
    token: str
    public_key: str  # one line, no end
    served: str
    data: str
    program: str = DEFAULT_PROGRAM  # what a worker runs when no publish tells it
    command: str = ""  # of the project, that opens the window; "" when there is none to be sure of
    run_port: int = DEFAULT_PORT
    publishes: bool = False  # the overlay knows what to publish
    rrsync: str = "/usr/bin/rrsync"
    nologin: str = "/usr/sbin/nologin"

    @property
    def guarded(self) -> bool:
        """True when the door has a port of its own, so that sshd itself can guard it."""
        return self.controller.port != SSH_PORT

    @property
    def dropin_name(self) -> str:
        return f"flodl-{self.label}.conf"

    @property
    def unit_name(self) -> str:
        return f"flodl-join-{self.label}.service"

    @property
    def worker_key(self) -> str:
        """Where a worker keeps the farm's key; ssh and flodl both know the tilde."""
        return f"~/.flodl/{self.label}/join_key"


def folder(root: str, label: str = "") -> str:
    return os.path.join(root, ".fdl", label) if label else os.path.join(root, ".fdl")


def check_label(label: str) -> str:
    """`label`, fit for a file's name, a unit's and a folder's. Raises Refused."""
    if not _LABEL.match(label):
        raise Refused(
            "bad-label",
            f"cannot call a farm {label!r}",
            "its name becomes that of files, of a systemd unit and of an environment",
            "letters, digits, - and _, at most 40: fdl join-config lab",
        )
    return label


def check_door(door: str) -> str:
    if door not in DOORS:
        known = "; ".join(f"{name}: {line}" for name, line in DOORS.items())
        raise Refused("bad-door", f"cannot use --door {door!r}", "there is no such door", known)
    return door


def parse_controller(text: str, own_user: str) -> Controller:
    """`[user@]host[:port]`; without a user this box's own, without a port ssh's 22. Raises Refused."""
    found = ssh_target(text, "--controller")
    user = found.user or own_user
    if not _USER.match(user) or not _HOST.match(found.target or ""):
        raise Refused(
            "bad-address",
            f"cannot read --controller: {text!r}",
            "user and host go into sshd's and ssh's files, and these signs do not",
            "write user@host:port, e.g. me@desk.example.com:2222",
        )
    return Controller(user, found.target or "", found.port or SSH_PORT)


def check_path(path: str, what: str) -> str:
    """An absolute path that authorized_keys, YAML and a shell can all carry. Raises Refused."""
    if any(ord(ch) < 32 or ord(ch) == 127 or 0xD800 <= ord(ch) <= 0xDFFF for ch in path):
        raise Refused("bad-path", f"cannot use {what} {path!r}", "it holds a control character or is no UTF-8")
    return path
