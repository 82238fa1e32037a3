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
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is defined in C

from flodl_planes.hub.process import Hub
from flodl_planes.relay.process import Relay
from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices
from flodl_wire.hub_messages import Finished, Form, FromHub, HubFailed, Large, Passed, RankGone, Ready, Stop
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.result import RunResult
from flodl_wire.specs import Envelope, EnvelopeController, EnvelopeWorker, HubSpec, RankPlace, RelaySpec

SALT = os.urandom(16).hex()
PATIENCE_S = 300.0


def warm_up() -> None:
    """Load, once for all that is forked from here, what torch loads at a first step; a pool of OpenMP threads would not
    survive a fork."""
    torch.set_num_threads(1)
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0).step()


def fork(program: Callable[[], None], folder: Path, name: str, closing: Sequence[socket.socket] = ()) -> int:
    """A child that runs `program` in `folder` and ends with 0, or with a traceback in `folder`/<name>.log and 1."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        for sock in closing:
            sock.close()
        os.chdir(folder)
        sys.stdout.flush()
        log = (folder / f"{name}.log").open("w", buffering=1)
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = log
        try:
            program()
            code = 0
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


class ForkedWorld:
    """`hosts`: ranks on each. `folder`: an empty one, for logs, sockets and the run's files (a short path)."""

    def __init__(self, folder: Path, mode: str, hosts: Sequence[int]) -> None:
        self.folder, self.mode, self.size = folder, mode, sum(hosts)
        self._hosts: dict[str, list[int]] = {}
        for number, ranks in enumerate(hosts):
            first = sum(hosts[:number])
            self._hosts[f"host-{number}"] = [*range(first, first + ranks)]
        self._pair, self._hubs_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door = socket.create_server(("127.0.0.1", 0))
        self._store: TCPStore | None
        self._store_port, self._store = serve_store() if "nccl" in mode else (0, None)
        self._children: dict[int, str] = {}  # process → "hub", "relay host-0", "rank 0"
        self._told: list[FromHub] = []
        self._passed = 0

    def run(self, script: Callable[[], None]) -> RunResult:
        """`script` in each rank's process, to the end of all of them. Raises RuntimeError, with the ends of all logs,
        when the run fails or takes more than PATIENCE_S."""
        (self.folder / "run").mkdir()
        spec = HubSpec("quality", str(self.folder / "run"), str(self.folder), self.mode, SALT)
        self._fork("hub", lambda: Hub(spec, self._hubs_end).run(), [])
        self._hubs_end.close()
        try:
            ready = self._hear_until(Ready)
            places = [
                RankPlace(rank, host, at, "cpu") for host, ranks in self._hosts.items() for at, rank in enumerate(ranks)
            ]
            self._tell(Form(places))
            for number, host in enumerate(self._hosts):
                self._start_host(host, "" if number else ready.socket, script)
            ended = self._hear_until(Finished, HubFailed)
            self._serve_until(lambda: not any(name.startswith("rank") for name in self._children.values()))
            self._tell(Stop("the run is over"))
            self._serve_until(lambda: not self._children)
        finally:
            for child in self._children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            self._pair.close()
            self._door.close()
        if isinstance(ended, HubFailed):
            raise RuntimeError(f"the run failed: {ended.what}: {ended.why}\n{self._logs()}")
        result: RunResult = ended.result
        return result

    def _start_host(self, host: str, hub_socket: str, script: Callable[[], None]) -> None:
        ranks, relay_socket = self._hosts[host], str(self.folder / f"{host}.sock")
        port = self._door.getsockname()[1]
        spec = RelaySpec(
            host, "127.0.0.1", port, ranks, self.size, SALT, "quality", self.mode,
            hub_socket=hub_socket, relay_socket=relay_socket,
        )  # fmt: skip
        self._fork(f"relay {host}", lambda: Relay(spec).run(), [self._pair, self._door])
        envelope = Envelope(
            EnvelopeController("127.0.0.1", port), self.size, len(self._hosts),
            EnvelopeWorker(host, ranks, CpuDevices(len(ranks))), self.mode, "quality",
            relay_socket=relay_socket, store_port=self._store_port,
        )  # fmt: skip
        for at, rank in enumerate(ranks):
            role = {environ.CLUSTER_JSON: blob.encode(envelope), environ.LOCAL_RANK: str(at), "OMP_NUM_THREADS": "1"}

            def program(role: dict[str, str] = role) -> None:
                os.environ.update(role)
                sys.orig_argv = [sys.executable, "train.py"]
                script()

            self._fork(f"rank {rank}", program, [self._pair, self._door])

    def _fork(self, name: str, program: Callable[[], Any], closing: list[socket.socket]) -> None:
        self._children[fork(program, self.folder, name, closing)] = name

    def _hear_until(self, *kinds: type) -> Any:
        def said() -> FromHub | None:
            return next((message for message in self._told if isinstance(message, kinds)), None)

        self._serve_until(lambda: said() is not None)
        return said()

    def _serve_until(self, reached: Callable[[], bool]) -> None:
        """What a launcher, a door and the agents do, until then."""
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            if time.monotonic() > deadline or not self._children:
                raise RuntimeError(f"the run does not come to its end\n{self._logs()}")
            ready, _, _ = select.select([self._pair, self._door], [], [], 0.05)
            if self._pair in ready and not self._hear():
                time.sleep(0.01)  # the hub has closed its end; what is left is to wait for the processes
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
        self._told.append(message)
        return True

    def _pass_on(self) -> None:
        sock, (address, _) = self._door.accept()
        head = sock.recv(8, socket.MSG_WAITALL)
        self._passed += 1
        with suppress(OSError):
            passed = Passed(self._passed, head.hex(), address)
            socket.send_fds(self._pair, [encode_message(passed)], [sock.fileno()])
        sock.close()

    def _reap(self) -> None:
        for child, name in list(self._children.items()):
            found, status = os.waitpid(child, os.WNOHANG)
            if not found:
                continue
            del self._children[child]
            code = os.waitstatus_to_exitcode(status)
            kind, _, number = name.partition(" ")
            if kind == "rank":
                why = f"killed by signal {-code}" if code < 0 else f"exit {code}"
                self._tell(RankGone(int(number), code == 0, why, code if code >= 0 else None))

    def _tell(self, message: Any) -> None:
        with suppress(OSError):
            self._pair.send(encode_message(message))

    def _logs(self) -> str:
        return "\n".join(f"{path.name}: {path.read_text()[-1000:]}" for path in sorted(self.folder.glob("*.log")))
