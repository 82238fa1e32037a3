"""The data's folder, mounted read-only from another box by sshfs while this walk-in lives.

What is mounted there already is used as it is. Ours is a child of ours, so it goes when we do: told, killed or done. A
mount whose server has gone is detached at once, for a folder that hangs would hang whoever looks at it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from flodl_agent import descent, mounts
from flodl_agent.starting import start
from flodl_wire.deadlines import deadline
from flodl_wire.faults import Broken, Fault, Refused, Transient
from flodl_wire.remote_path import RemotePath

CONNECT = 10.0  # seconds for the TCP connection to sshd
MOUNTING = 20.0  # until the mount stands
LOOK = 10.0  # until its folder answers
_LOOK = "import os, sys; next(os.scandir(sys.argv[1]), None)"
_EVERY = 0.02  # seconds between two looks at the kernel's list; nothing announces a mount
_SSHFS = "fuse.sshfs"
_NOT_THERE = ("no such file or directory", "not a directory")


def mount_argv(place: RemotePath, target: str, identity: str | None, options: Sequence[str]) -> list[str]:
    """The user's options come first: of one key said twice ssh takes the first. Pure."""
    argv = ["sshfs", "-f", f"{place.login}:{place.path}", target]
    if place.port is not None:
        argv += ["-p", str(place.port)]
    ours = [*options, *([f"IdentityFile={identity}"] if identity else [])]
    ours += ["ro", "reconnect", "ServerAliveInterval=15", "ServerAliveCountMax=3", "BatchMode=yes"]
    ours += ["StrictHostKeyChecking=accept-new", f"ConnectTimeout={deadline(CONNECT):.0f}"]
    return [*argv, *(word for option in ours for word in ("-o", option))]


class DataMount:
    """`identity` and `options` as for ssh. Ours ends with `close`."""

    def __init__(self, place: RemotePath, target: str, identity: str | None, options: Sequence[str]) -> None:
        self.place = place
        self.target = target
        self._argv = mount_argv(place, target, identity, options)
        self._sshfs: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None  # what it printed

    def ready(self) -> list[str]:
        """Mounted and answering when this returns; notes for the person at the box.

        Raises Refused for a flaw of this box, Transient when the other one does not give it; nothing of ours is left
        mounted then.
        """
        found = mounts.at(self.target)
        if found is not None:
            why = look(self.target)
            if not why:
                return self._whose(found)
            self._give_up(found, why)
        self._check_tools()
        self._make_folder()
        try:
            self._mount()
            if why := look(self.target):
                self._check_alive()
                raise self._unreachable(why)
        except BaseException:
            self.close()
            raise
        return [f"{self.place} is mounted at {self.target}, read-only"]

    def close(self) -> None:
        """Unmount what we mounted. sshfs does it when it is told to end; what it leaves is detached."""
        if self._sshfs is None:
            return
        sshfs, self._sshfs = self._sshfs, None
        for number in (signal.SIGTERM, signal.SIGKILL):
            if sshfs.poll() is None:
                _signal_group(sshfs.pid, number)
                try:
                    sshfs.wait(deadline(2.0))
                except subprocess.TimeoutExpired:
                    continue
        _signal_group(sshfs.pid, signal.SIGKILL)  # its ssh, should it have outlived it
        if self._said:
            self._said.close()
        if mounts.at(self.target):
            detach(self.target)

    def _whose(self, found: mounts.Mount) -> list[str]:
        ours = f"{self.place.login}:{self.place.path}"
        if self._sshfs is None and found.source.rstrip("/") != ours.rstrip("/"):
            return [f"{self.target} holds {found.source} already, not {ours}: used as it is"]
        return []

    def _give_up(self, found: mounts.Mount, why: str) -> None:
        """A mount that does not answer. Raises Transient unless it could be cleared away for a new one."""
        if self._sshfs is None and found.kind != _SSHFS:
            fix = "mend the mount, or unmount it"
            raise Transient("no-data", f"cannot read {self.target}", f"{found.source}, mounted there, {why}", fix)
        self.close()
        if mounts.at(self.target):
            detach(self.target)
        if mounts.at(self.target):
            what, fix = f"cannot use {self.target}", f"umount -l {self.target}"
            raise Transient("stale-mount", what, f"the dead mount of {found.source} there cannot be detached", fix)

    def _check_tools(self) -> None:
        what = f"cannot mount {self.place}"
        if shutil.which("sshfs") is None:
            raise Refused("no-tool", what, "there is no sshfs on this box", "apt install sshfs")
        if not Path("/dev/fuse").exists():
            fix = "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN"
            raise Refused("no-fuse", what, "there is no /dev/fuse on this box", fix)

    def _make_folder(self) -> None:
        try:
            Path(self.target).mkdir(parents=True, exist_ok=True)
        except OSError as err:
            what = f"cannot mount at {self.target}"
            fix = f"sudo install -d -o $USER {self.target}, or choose another with --data-path"
            raise Refused("unwritable", what, err.strerror or str(err), fix) from None

    def _mount(self) -> None:
        us = os.getpid()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._sshfs = start(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=self._said,
            stderr=self._said,
            start_new_session=True,
            preexec_fn=lambda: descent.die_with(us, signal.SIGTERM),
        )
        until = time.monotonic() + deadline(MOUNTING)
        while not mounts.at(self.target):
            self._check_alive()
            if time.monotonic() > until:
                raise self._unreachable(f"it was not mounted within {deadline(MOUNTING):g} s")
            threading.Event().wait(_EVERY)

    def _check_alive(self) -> None:
        """Raises Fault, in sshfs's own words, when it has ended."""
        if self._sshfs is not None and self._said is not None and self._sshfs.poll() is not None:
            self._said.seek(0)
            raise self._failed(self._said.read().decode(errors="replace"), self._sshfs.returncode)

    def _failed(self, text: str, code: int) -> Fault:
        what = f"cannot mount {self.place}"
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        said = next((line for line in lines if not line.startswith("Warning: Permanently added")), f"exit {code}")
        if "unknown option" in text or "fuse: " in text:
            why = next((line for line in lines if "unknown option" in line or "fuse: " in line), said)
            return Refused("no-mount", what, why, f"try by hand: {self.by_hand()}")
        if "remote host has disconnected" in text:
            fix = "give it a key that may (an `rrsync` key reads what is published, no more); or let sshd have sftp"
            return Transient("no-sftp", what, "the other box lets this key in and has no sftp for it", fix)
        if "No such file or directory" in text:
            return Transient("no-data", what, f"there is no folder {self.place.path} there")
        return self._unreachable(said)

    def _unreachable(self, why: str) -> Transient:
        return Transient("unreachable", f"cannot mount {self.place}", why, f"try by hand: {self.by_hand()}")

    def by_hand(self) -> str:
        port = f"-p {self.place.port} " if self.place.port else ""
        return f"sshfs {port}-o ro {self.place.login}:{self.place.path} {self.target}"


def look(folder: str) -> str:
    """Why `folder` cannot be read, "" when it can. Asked by a child, for a dead network mount never answers."""
    child = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _LOOK, folder],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert child.stderr
    try:
        child.wait(deadline(LOOK))
    except subprocess.TimeoutExpired:
        child.kill()  # it may not hear that before the mount has gone
        threading.Thread(target=child.wait, daemon=True).start()
        child.stderr.close()
        return f"does not answer within {deadline(LOOK):g} s"
    with child.stderr:
        said = child.stderr.read().decode(errors="replace").strip().splitlines()
    if child.returncode == 0:
        return ""
    last = said[-1] if said else f"exit {child.returncode}"
    return last.partition("] ")[2].partition(":")[0].lower() or last


def detach(target: str) -> None:
    """Take a mount away from its place now; who still uses it keeps it. Never fails: the kernel's list says."""
    for command in (["fusermount3", "-u", "-z", "--", target], ["umount", "-l", "--", target]):
        if shutil.which(command[0]):
            subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if not mounts.at(target):
            return


def check_root(folder: str) -> None:
    """The data's folder can be read. Raises Refused: it is not there; Broken: it is and cannot be read."""
    why = look(folder)
    if why in _NOT_THERE:
        what, fix = f"cannot use data_path {folder}", "mount it, mend --data-path, or name a --data-source"
        raise Refused("no-data", what, "there is no such folder on this box", fix)
    if why:
        raise Broken("no-data", f"cannot use data_path {folder}", why, "mend the mount or its rights")


def _signal_group(pid: int, number: int) -> None:
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass
