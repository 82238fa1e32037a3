"""The road of a walk-in behind ssh: one local port that leads to the controller, fresh for each attempt.

OpenSSH carries it; where no `ssh` binary is, sshtunnel does, at half the rate (py_forward.py). Either way it stands
when an answer has come back through it: a listening ssh says nothing yet about what it may reach.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Protocol

from flodl_agent import descent
from flodl_agent.forward_argv import ended, forward_argv, open_key_file, refused_behind, shown
from flodl_agent.starting import start
from flodl_wire.address import Address
from flodl_wire.config import Ssh
from flodl_wire.deadlines import CONNECT_BUDGET, HTTP_REQUEST, deadline
from flodl_wire.faults import Fault, Refused, Transient

READY = 20.0  # seconds until ssh listens, as in the reference: a slow login takes eight
_LEAST_READY = 5.0  # of these are processor time, which no time-out scale makes shorter
_LOOK = 0.1  # seconds between two looks at a port that nobody announces
_AGAIN = 0.5  # seconds between two tries of what nothing listens behind yet
_LAST_WORD = 1.0  # seconds for ssh to say why it closed a connection
_WORDS = 50  # lines of ssh kept


class Carrier(Protocol):
    """What forwards `port` of 127.0.0.1."""

    port: int

    def open(self) -> None:
        """Begin. Raises Fault."""

    def failed(self) -> Fault | None:
        """Why it no longer forwards; None while it does, or may still."""

    def words(self) -> list[str]:
        """What it has said of connections through it."""

    def close(self) -> None: ...


class Forward:
    """``with Forward(ssh, controller) as port: …``. Entering raises Fault: ssh itself, or what lies behind."""

    def __init__(self, ssh: Ssh, controller: Address) -> None:
        self._ssh = ssh
        self._controller = controller
        self._carrier: Carrier

    def __enter__(self) -> int:
        check_key_file(self._ssh)
        for left in (2, 1, 0):
            self._carrier = self._make(free_port())
            try:
                self._carrier.open()
                self._await()
            except Fault as fault:
                taken = any("in use" in word for word in self._carrier.words())
                self._carrier.close()
                if not (taken and left):
                    raise fault
            except BaseException:
                self._carrier.close()
                raise
            else:
                return self._carrier.port
        raise AssertionError("the last try raises or returns")

    def __exit__(self, *_: object) -> None:
        self._carrier.close()

    def failed(self) -> Fault | None:
        return self._carrier.failed()

    def _make(self, port: int) -> Carrier:
        program = ssh_program()
        if program:
            return SshForward(forward_argv(self._ssh, port, self._controller, program), self._ssh, port)
        from flodl_agent.py_forward import PyForward

        return PyForward(self._ssh, self._controller, port)

    def _await(self) -> None:
        """Until something at the controller's port has answered through it."""
        seconds = max(deadline(READY), _LEAST_READY)
        ready_by = time.monotonic() + seconds
        patience: float | None = None  # how long nothing need listen at the far end yet
        pause = threading.Event()
        while True:
            fault = self._carrier.failed()
            if fault:
                raise fault
            knocked = knock(self._carrier.port, deadline(HTTP_REQUEST))
            if knocked == "answered":
                return
            now = time.monotonic()
            if knocked == "not there":
                if now > ready_by:
                    said = self._carrier.words()
                    why = f"it was not ready within {seconds:g} s" + (f"; ssh says: {said[-1]}" if said else "")
                    raise Transient("ssh-slow", f"cannot open a forward through {shown(self._ssh)}", why)
                pause.wait(_LOOK)
                continue
            fault = self._behind()
            patience = patience or now + deadline(CONNECT_BUDGET)
            if fault.code != "refused" or now > patience:
                raise fault
            pause.wait(_AGAIN)

    def _behind(self) -> Fault:
        """A connection through it was closed unanswered: why. ssh's word may come a moment later."""
        until = time.monotonic() + _LAST_WORD
        pause = threading.Event()
        while not any("open failed" in word for word in self._carrier.words()) and time.monotonic() < until:
            if fault := self._carrier.failed():
                return fault
            pause.wait(_LOOK)
        return refused_behind(self._ssh, self._controller, self._carrier.words())


class SshForward:
    """An ssh of our own, in a session of its own (Ctrl-C must not cut the agent's goodbye short), that dies with us."""

    def __init__(self, argv: list[str], ssh: Ssh, port: int) -> None:
        self.port = port
        self._argv = argv
        self._ssh = ssh
        self._words: deque[str] = deque(maxlen=_WORDS)
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread

    def open(self) -> None:
        self._process = start(
            self._argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=partial(descent.die_with, os.getpid()),
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process and self._process.stderr
        for line in self._process.stderr:
            if line.strip():
                self._words.append(line.rstrip())

    def words(self) -> list[str]:
        return list(self._words)

    def failed(self) -> Fault | None:
        assert self._process
        code = self._process.poll()
        if code is None:
            return None
        self._reader.join(_LAST_WORD)
        return ended(self._ssh, code, self.words())

    def close(self) -> None:
        if self._process is None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):  # the group: a ProxyCommand belongs to it
            try:
                os.killpg(self._process.pid, number)
                self._process.wait(2)
                break
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self._process.wait()
        self._reader.join(_LAST_WORD)
        if self._process.stderr and not self._reader.is_alive():
            self._process.stderr.close()


def knock(port: int, seconds: float) -> str:
    """One request through the forward: "not there" (nobody listens yet), "closed" (nothing came back), or "answered".

    A HEAD is the shortest thing that every flodl window answers; it is no hello, and counts for nothing there.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=seconds) as sock:
            sock.sendall(f"HEAD /state.json HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
            return "answered" if sock.recv(1) else "closed"
    except ConnectionRefusedError:
        return "not there"
    except TimeoutError:
        return "answered"  # it holds the line and says nothing: the hello will tell what that is
    except OSError:
        return "closed"


def ssh_program() -> str | None:
    return shutil.which("ssh")


def free_port() -> int:
    """A port of loopback that nobody holds at this moment."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def check_key_file(ssh: Ssh) -> None:
    """Raises Refused for what would make ssh ask or sulk: no such key, or one that others may read."""
    if not ssh.identity_file:
        return
    path = Path(ssh.identity_file).expanduser()
    try:
        seen = path.stat()
    except OSError as err:
        what = f"cannot use the key {ssh.identity_file}"
        raise Refused("no-key-file", what, (err.strerror or str(err)).lower(), "check --identity") from None
    if seen.st_uid == os.getuid() and seen.st_mode & 0o077:
        raise open_key_file(ssh)


__all__ = ["Carrier", "Forward", "SshForward", "check_key_file", "free_port", "knock"]
