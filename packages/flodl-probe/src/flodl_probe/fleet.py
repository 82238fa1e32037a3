"""All hosts at once, each in its own time: one that is slow or gone keeps nobody waiting past its deadline."""

from __future__ import annotations

import os
import secrets
import shlex
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import msgspec

from flodl_probe.answer import INSTALL, understand
from flodl_probe.exchange import exchange
from flodl_probe.listener import Listener
from flodl_probe.plan import Plan, Target, controller_row
from flodl_probe.question import Question
from flodl_probe.report import HostReport
from flodl_wire import environ
from flodl_wire.ssh_argv import enter, find_and_run, ssh_argv

_FAREWELL = 3.0  # seconds for the threads to see their processes end
_PASSED_ON = (environ.NET_TIMEOUT_SCALE, environ.VERBOSITY)


class Fleet:
    """`ask` returns one report per target, in the config's order; the controller's own first when it is this box."""

    def __init__(self, plan: Plan, here: str, folder: str | None, seconds: float, version: str) -> None:
        self._plan = plan
        self._here = here
        self._folder = folder  # the project's, on this box
        self._seconds = seconds
        self._version = version
        self._live: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._ended = False

    def ask(self) -> list[HostReport]:
        targets = list(self._plan.targets)
        everyone_here = all(target.local for target in targets)
        host = "127.0.0.1" if everyone_here else local_address(self._plan.controller or "")
        with ExitStack() as open_door:
            nonce = secrets.token_hex(8)
            listening = False
            if host is not None:
                with suppress(OSError):  # taken: the controller's row says by whom
                    open_door.enter_context(Listener(host, self._plan.port, nonce))
                    listening = True
                for target in targets:
                    target.question.nonce = nonce if listening else None
                row = controller_row(self._plan, self._here, self._folder, listening)
                targets.insert(0, Target(row, local=True))
            rows: list[HostReport | None] = [None] * len(targets)
            threads = [
                threading.Thread(target=self._one, args=(target, rows, index), daemon=True)
                for index, target in enumerate(targets)
            ]
            if sys.stderr.isatty():
                print(f"asking {len(targets)} boxes, {self._seconds:g} s at most …", file=sys.stderr)
            for thread in threads:
                thread.start()
            try:
                for thread in threads:
                    thread.join()
            finally:
                self._end_all()
                until = time.monotonic() + _FAREWELL
                for thread in threads:
                    if thread.ident is not None:
                        thread.join(max(0.0, until - time.monotonic()))
        return [row for row in rows if row is not None]

    def _one(self, target: Target, rows: list[HostReport | None], index: int) -> None:
        asked = target.question
        argv, tried = self._command(target)

        def question(port: int | None) -> bytes:
            if target.tunnel and not target.local:
                dial = None if port is None else f"127.0.0.1:{port}"
                return msgspec.json.encode(msgspec.structs.replace(asked, dial=dial)) + b"\n"
            return msgspec.json.encode(asked) + b"\n"

        tunnel = target.tunnel and not target.local
        outcome = exchange(argv, os.environ, question, self._seconds, tunnel, self._started)
        rows[index] = understand(asked, outcome, tried, self._version, self._seconds)

    def _started(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._live.append(process)
            ended = self._ended
        if ended:  # Ctrl-C came while it was being started
            self._end_all()

    def _end_all(self) -> None:
        with self._lock:
            self._ended = True
            for process in self._live:
                if process.returncode is None:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, 9)

    def _command(self, target: Target) -> tuple[list[str], str]:
        """What to start, and the part of it that a person can try."""
        asked = target.question
        if target.local:
            return [sys.executable, "-m", "flodl_probe.main", "answer"], ""
        more = ["-o", f"ConnectTimeout={max(1, int(self._seconds * 0.8))}"]
        if target.tunnel:
            more += ["-o", "ExitOnForwardFailure=yes", "-R", f"127.0.0.1:0:127.0.0.1:{self._plan.port}"]
        argv = ssh_argv(asked.host, target.ssh, os.environ.get(environ.HOST_USER), remote_script(asked), more)
        return argv, f"{shlex.join(argv[:-1])} true"


def remote_script(asked: Question) -> str:
    """Become flodl-probe over there. A missing folder is no end: the answer will say so."""
    env = {name: os.environ[name] for name in _PASSED_ON if name in os.environ}
    where = asked.path or "~"
    install = f"fix: on {asked.host}: cd {where} && {INSTALL}"
    otherwise = (
        'echo "flodl-probe is not installed on $(uname -n): neither in $PWD/.venv/bin, nor in $HOME/.local/bin, '
        f'nor on the PATH of a login shell" >&2; echo {shlex.quote(install)} >&2; exit 127'
    )
    return enter(asked.path, env) + find_and_run("flodl-probe", ["answer"], otherwise)


def local_address(host: str) -> str | None:
    """The address of `host` when it is this box's own (then the window would bind it), else None."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, _, _, _, where in found:
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind((str(where[0]), 0, *where[2:]))
            return str(where[0])
    return None
