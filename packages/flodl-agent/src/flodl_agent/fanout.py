"""Starts an agent on every host of a roster, all at once, and stays between them and the launcher.

stdin is the launcher's grip: its end ends everything. Each agent's stdin is ours in turn, so that the chain holds over
ssh too: when we die, whatever the cause, every agent reads the end of its own. (An ssh whose road is cut would read
nothing for half a minute: it dies with us by order of the kernel.) Children have sessions of their own, so that Ctrl-C
reaches them through us.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from shlex import join, quote

import msgspec

from flodl_agent import descent, tunnel
from flodl_agent.logs import LineSplitter
from flodl_agent.ssh import remote_script, ssh_command, warnings
from flodl_wire import environ, outlets, sibling
from flodl_wire.deadlines import KILL_GRACE, deadline
from flodl_wire.specs import AgentSpec, FanoutEvent, FanoutHost, FanoutSpec

_LAST_WORDS = 12  # lines
_MARGIN = 2.0  # seconds beyond an agent's own kill ladder: its goodbye, and the way there and back
_READ = 64 * 1024

Emit = Callable[[FanoutEvent], None]


class Fanout:
    """All hosts. `run` returns when every child has ended: True when all did so with exit 0."""

    def __init__(self, spec: FanoutSpec, emit: Emit) -> None:
        self._spec = spec
        self._emit = emit
        self._errands: list[_Errand] = []
        self._ending: asyncio.Task[None] | None = None
        self._over = False

    async def run(self) -> bool:
        self._errands = [_Errand(host, self._spec.host_user, self._emit) for host in self._spec.hosts]
        codes = await asyncio.gather(*(errand.run() for errand in self._errands))
        self._over = True
        if self._ending:
            self._ending.cancel()
        return all(code == 0 for code in codes)

    def end(self) -> None:
        """Close every stdin; TERM and then KILL what does not end in its time. A second call does not wait. Once all
        have ended there is nothing to do: the order to end often comes in that very moment.
        """
        if self._over:
            return
        if self._ending:
            self._kill(signal.SIGKILL)
            return
        for errand in self._errands:
            errand.close_stdin()
        self._ending = asyncio.ensure_future(self._insist())

    async def _insist(self) -> None:
        await asyncio.sleep(deadline(KILL_GRACE) + deadline(_MARGIN))
        self._kill(signal.SIGTERM)
        await asyncio.sleep(deadline(_MARGIN))
        self._kill(signal.SIGKILL)

    def _kill(self, number: int) -> None:
        for errand in self._errands:
            errand.kill(number)


class _Errand:
    """One host: a local agent or an ssh that carries one."""

    def __init__(self, host: FanoutHost, host_user: str | None, emit: Emit) -> None:
        self._host = host
        self._name = host.agent.host
        self._user = host_user
        self._emit = emit
        self._process: subprocess.Popen[bytes] | None = None
        self._delivered = False
        self._last_words: deque[str] = deque(maxlen=_LAST_WORDS)

    async def run(self) -> int:
        argv, env = self._command()
        command = self._shown(argv)
        for warning in [] if self._host.local else warnings(self._name, self._host.ssh):
            self._say([warning])
        try:
            process = self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
                preexec_fn=None if self._host.local else partial(descent.die_with, os.getpid()),
            )
        except OSError as err:
            why = f"cannot run {argv[0]}: {(err.strerror or str(err)).lower()}"
            hint = "" if self._host.local else "\nfix: install OpenSSH's client (apt install openssh-client)"
            self._emit(FanoutEvent("exited", self._name, 127, why + hint, command))
            return 127
        self._emit(FanoutEvent("started", self._name, command=command))
        pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe]
        readers = [asyncio.ensure_future(self._read(pipe.fileno())) for pipe in pipes]
        if self._host.tunnel is None or self._host.local:
            self._deliver(self._host.agent)
        code = await _ended(process)
        await asyncio.wait(readers, timeout=deadline(_MARGIN))  # an ssh master in the background may hold them open
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        self.close_stdin()
        for pipe in pipes:
            pipe.close()
        self._emit(FanoutEvent("exited", self._name, code, "\n".join(self._last_words), command))
        return code

    def _command(self) -> tuple[list[str], dict[str, str]]:
        """What to start, and its environment."""
        host, agent = self._host, self._host.agent
        if not host.local:
            argv = ssh_command(
                self._name,
                host.ssh,
                self._user,
                agent.path,
                host.env,
                tunneled=host.tunnel,
                docker=host.docker,
                extra_hosts=host.extra_hosts,
            )
            return argv, dict(os.environ)
        own = {name: value for name, value in os.environ.items() if name not in environ.ROLE_VARIABLES}
        if host.docker:
            script = remote_script(self._name, agent.path, host.env, host.docker, host.extra_hosts)
            return ["/bin/sh", "-c", script], own
        return [local_agent(agent.path), "run"], {**own, **host.env}

    def _shown(self, argv: list[str]) -> str:
        """What a person can try; the script that finds the agent is ours."""
        road = [] if self._host.local else argv[:-1]
        if not self._host.docker:
            return join(argv if self._host.local else road)
        inside = f"cd {quote(self._host.agent.path or '.')} && docker compose run --rm {quote(self._host.docker)} sh"
        return f"{join(road)} {quote(inside)}" if road else inside

    def _deliver(self, spec: AgentSpec) -> None:
        """The spec: some hundred bytes, which a new pipe always takes. If nobody reads any more, the exit says why."""
        assert self._process and self._process.stdin
        if self._delivered or self._process.stdin.closed:
            return
        self._delivered = True
        if self._host.docker:
            spec = msgspec.structs.replace(spec, path=".")  # the service's own place for the project
        try:
            os.write(self._process.stdin.fileno(), msgspec.json.encode(spec) + b"\n")
        except BrokenPipeError:
            pass

    def _through_tunnel(self, line: str) -> bool:
        """Whether ssh has said which port leads to us; then the agent may know it, too."""
        port = tunnel.port_in(line) if self._host.tunnel is not None and not self._delivered else None
        if port is None:
            return False
        self._deliver(msgspec.structs.replace(self._host.agent, controller_host="127.0.0.1", controller_port=port))
        return True

    async def _read(self, number: int) -> None:
        lines = LineSplitter()
        os.set_blocking(number, False)
        while True:
            await _readable(number)
            try:
                data = os.read(number, _READ)
            except BlockingIOError:
                continue
            self._say(lines.feed(data) if data else lines.finish())
            if not data:
                return

    def _say(self, lines: list[str]) -> None:
        for line in lines:
            if self._through_tunnel(line):
                continue
            for said in (line, tunnel.hint(line)):
                if said.strip():
                    self._last_words.append(said)
                if said.strip() or said is line:
                    self._emit(FanoutEvent("line", self._name, text=said))

    def close_stdin(self) -> None:
        if self._process and self._process.stdin:
            self._process.stdin.close()

    def kill(self, number: int) -> None:
        """The whole process group (ssh may have a ProxyCommand). Not yet reaped, so its number is still its own."""
        if self._process and self._process.returncode is None:
            try:
                os.killpg(self._process.pid, number)
            except ProcessLookupError:
                pass


async def _readable(number: int) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(number, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(number)


async def _ended(process: subprocess.Popen[bytes]) -> int:
    handle = os.pidfd_open(process.pid)
    try:
        await _readable(handle)
    finally:
        os.close(handle)
    return process.wait()


def local_agent(path: str | None) -> str:
    """The agent for this very box: of the project's own environment, as on any other host, else the one beside us."""
    if path:
        own = Path(path).expanduser() / ".venv/bin/flodl-agent"
        if os.access(own, os.X_OK):
            return str(own)
    return sibling.require("flodl-agent")


class LineWriter:
    """Events as JSON lines on stdout. `broken` once the launcher no longer reads."""

    def __init__(self, on_broken: Callable[[], None]) -> None:
        self._on_broken = on_broken
        self._broken = False

    def __call__(self, event: FanoutEvent) -> None:
        if self._broken:
            return
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
        sys.stdout.buffer.flush()
        if outlets.reader_left():
            self._broken = True
            self._on_broken()
