"""A world of real processes on this box: hub, relays and ranks, forked from this process, which has torch.

It starts in half a second, where importing torch for each rank costs three. This process plays launcher, door and
agents: it tells the hub the world, hands it the connections of hosts that are not its own box, and reports ends. Every
host but the first is such a one: its relay dials through a door, so that averages travel sealed, and in the wire type
that the ranks have asked for.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is defined in C

from flodl_planes.hub.process import Hub
from flodl_planes.relay.process import Relay
from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices, GpuDevices
from flodl_wire.hub_messages import Finished, Form, FromHub, HubFailed, Large, Passed, Progress, RankGone, Ready, Stop
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.result import RunResult
from flodl_wire.specs import Envelope, EnvelopeController, EnvelopeWorker, HubSpec, RankPlace, RelaySpec

SALT = "ab" * 16
PATIENCE_S = 300.0


def warm_up() -> None:
    """Load, once for all that is forked from here, what torch loads at a first step; a pool of OpenMP threads would not
    survive a fork."""
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0).step()


def fork(program: Callable[[], Any], folder: Path, name: str, closing: Sequence[socket.socket] = ()) -> int:
    """A child that runs `program` and ends with what it answers, 0 for None; or with a traceback in `folder`/<name>.log
    and 1. `closing`: what the child has inherited and must not hold open."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for sock in closing:
            sock.close()
        sys.stdout.flush()
        with (folder / f"{name}.log").open("w", buffering=1) as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            sys.stdout = sys.stderr = log
            sys.excepthook = sys.__excepthook__
            warnings.resetwarnings()
            try:
                code = int(program() or 0)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException:
                traceback.print_exc()
    finally:
        os._exit(code)


def serve_store() -> tuple[int, TCPStore]:
    """Its port on loopback. In a real run the hub serves it, and the agents carry the connections there."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    # the store closes the descriptor; given a host and a port instead, it would listen on every address
    return port, TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


@dataclass
class Outcome:
    """How a world ended. `folder`: where its logs are; `told`: all that the hub has said; `codes`: rank → exit code,
    below 0 for a signal; `stopped`: who stood still on the way (and was let go on)."""

    folder: Path
    told: list[FromHub] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)
    stopped: list[str] = field(default_factory=list)

    @property
    def result(self) -> RunResult:
        """Raises RuntimeError, with the ends of all logs, when the run has none."""
        for message in self.told:
            if isinstance(message, Finished):
                return message.result
        raise RuntimeError("\n".join(["no result", *map(str, self.told[-2:]), *self.logs()]))

    @property
    def failure(self) -> HubFailed:
        return next(message for message in self.told if isinstance(message, HubFailed))

    def logs(self) -> list[str]:
        return [f"{path.stem}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log"))]


class ForkedWorld:
    """`hosts`: name → ranks; the first is the hub's own box. `folder`: an empty one, for logs, sockets and the run's
    files (a short path). `gpu`: each host's ranks are on its first GPU, which this process must not have touched."""

    def __init__(self, folder: Path, mode: str, hosts: Mapping[str, Sequence[int]], *, gpu: bool = False) -> None:
        self.folder, self.mode, self.size, self._gpu = folder, mode, sum(map(len, hosts.values())), gpu
        self.outcome = Outcome(folder)
        self._hosts = {name: [*ranks] for name, ranks in hosts.items()}
        self._pair, self._hubs_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door = socket.create_server(("127.0.0.1", 0))
        self._store: TCPStore | None
        self._store_port, self._store = serve_store() if "nccl" in mode else (0, None)
        self._children: dict[int, str] = {}  # process → "hub", "relay here", "rank 0"
        self._passed = 0
        self._stopped: int | None = None

    def run(self, script: Callable[[], Any]) -> Outcome:
        """`script` in each rank's process, to the end of all of them. Raises RuntimeError, with the ends of all logs,
        when that takes more than PATIENCE_S or the hub is gone before the ranks."""
        (self.folder / "run").mkdir()
        spec = HubSpec("forked", str(self.folder / "run"), str(self.folder), self.mode, SALT)
        self._fork("hub", lambda: Hub(spec, self._hubs_end).run())
        self._hubs_end.close()
        try:
            self._serve_until(lambda: self._said(Ready))
            hub_socket = next(message.socket for message in self.outcome.told if isinstance(message, Ready))
            device = "cuda:0" if self._gpu else "cpu"
            places = [
                RankPlace(rank, host, at, device)
                for host, ranks in self._hosts.items()
                for at, rank in enumerate(ranks)
            ]
            self._tell(Form(places))
            for number, host in enumerate(self._hosts):
                self._start_host(host, "" if number else hub_socket, script)
            self._serve_until(lambda: self._said(Finished, HubFailed) and not self._running("rank"))
            self._tell(Stop("the run is over"))
            self._serve_until(lambda: not self._children)
        finally:
            for child in self._children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            self._pair.close()
            self._door.close()
        return self.outcome

    def _start_host(self, host: str, hub_socket: str, script: Callable[[], Any]) -> None:
        ranks, relay_socket = self._hosts[host], str(self.folder / f"{host}.sock")
        port = self._door.getsockname()[1]
        spec = RelaySpec(
            host, "127.0.0.1", port, ranks, self.size, SALT, "forked", self.mode,
            hub_socket=hub_socket, relay_socket=relay_socket,
        )  # fmt: skip
        self._fork(f"relay {host}", lambda: Relay(spec).run())
        envelope = Envelope(
            EnvelopeController("127.0.0.1", port), self.size, len(self._hosts),
            EnvelopeWorker(host, ranks, GpuDevices([0]) if self._gpu else CpuDevices(len(ranks))), self.mode, "forked",
            relay_socket=relay_socket, store_port=self._store_port,
        )  # fmt: skip
        for at, rank in enumerate(ranks):
            role = {environ.CLUSTER_JSON: blob.encode(envelope), environ.LOCAL_RANK: str(at), "OMP_NUM_THREADS": "1"}

            def program(role: dict[str, str] = role) -> Any:
                os.environ.update(role)
                sys.orig_argv = [sys.executable, "train.py"]
                return script()

            self._fork(f"rank {rank}", program)

    def _fork(self, name: str, program: Callable[[], Any]) -> None:
        closing = [self._pair, self._door] if name == "hub" else [self._pair, self._door, self._hubs_end]
        self._children[fork(program, self.folder, name, closing)] = name

    def _serve_until(self, reached: Callable[[], bool]) -> None:
        """What a launcher, a door and the agents do, until then: hear the hub, pass connections on, report ends."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if time.monotonic() > deadline:
                raise RuntimeError("\n".join(["the world does not come to its end", *self.outcome.logs()]))
            ready, _, _ = select.select([self._pair, self._door], [], [], 0.01)
            if self._pair in ready and not self._hear():
                if self._running("rank"):
                    raise RuntimeError("\n".join(["the hub is gone", *self.outcome.logs()]))
                time.sleep(0.01)  # what is left is to wait for the processes
            if self._door in ready:
                self._pass_on()
            self._reap()

    def _hear(self) -> bool:
        body, descriptors, _, _ = socket.recv_fds(self._pair, 1 << 18, 1)
        if not body:
            return False
        message: Any = decode_message(body, FromHub, "the hub")
        if isinstance(message, Large):
            message = decode_message(os.pread(descriptors[0], message.size, 0), FromHub, "the hub")
            os.close(descriptors[0])
        self.outcome.told.append(message)
        if isinstance(message, Progress) and self._stopped is not None:
            os.kill(self._stopped, signal.SIGCONT)  # it has stood still while time went on
            self._stopped = None
        return True

    def _pass_on(self) -> None:
        sock, (address, _) = self._door.accept()
        head = sock.recv(8, socket.MSG_WAITALL)
        self._passed += 1
        with suppress(OSError):
            body = encode_message(Passed(self._passed, head.hex(), address))
            socket.send_fds(self._pair, [body], [sock.fileno()])
        sock.close()

    def _reap(self) -> None:
        for child, name in list(self._children.items()):
            found, status = os.waitpid(child, os.WNOHANG | os.WUNTRACED)
            if not found:
                continue
            if os.WIFSTOPPED(status):
                self._stopped = child
                self.outcome.stopped.append(name)
                continue
            del self._children[child]
            code = os.waitstatus_to_exitcode(status)
            kind, _, number = name.partition(" ")
            if kind == "rank":
                self.outcome.codes[int(number)] = code
                why = f"killed by signal {-code}" if code < 0 else f"exit {code}"
                self._tell(RankGone(int(number), code == 0, why, code if code >= 0 else None))

    def _tell(self, message: Any) -> None:
        with suppress(OSError):
            self._pair.send(encode_message(message))

    def _said(self, *kinds: type) -> bool:
        return any(isinstance(message, kinds) for message in self.outcome.told)

    def _running(self, kind: str) -> bool:
        return any(name.startswith(kind) for name in self._children.values())
