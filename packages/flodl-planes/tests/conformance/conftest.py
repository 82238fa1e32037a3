"""Worlds of real processes, forked from this one; see README.md."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from flodl_planes.hub.process import Hub
from flodl_planes.relay.process import Relay
from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices
from flodl_wire.hub_messages import Finished, Form, FromHub, HubFailed, Passed, Progress, RankGone, Ready, Stop
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.result import RunResult
from flodl_wire.specs import Envelope, EnvelopeController, EnvelopeWorker, HubSpec, RankPlace, RelaySpec

sys.path.insert(0, str(Path(__file__).parent))
torch = pytest.importorskip("torch")
from torch.distributed import TCPStore  # noqa: E402 - behind the line that skips where torch is missing

SALT = "ab" * 16
MODES = ("cpu_sync", "cpu_cadence", "cpu_async", "nccl_sync", "nccl_cadence")
WAIT_S = 60.0


@dataclass
class Outcome:
    """How a world ended. `folder`: where its ranks have left their records."""

    folder: Path
    told: list[FromHub] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)

    @property
    def result(self) -> RunResult:
        (finished,) = [message for message in self.told if isinstance(message, Finished)] or [None]
        assert finished is not None, "\n".join(map(str, [*self.told[-2:], *self.logs()]))
        return finished.result

    @property
    def failure(self) -> HubFailed:
        return next(message for message in self.told if isinstance(message, HubFailed))

    def logs(self) -> list[str]:
        return [f"{path.stem}: {path.read_text()[-1500:]}" for path in sorted(self.folder.glob("*.log"))]


class World:
    """Plays launcher, door and agents. The hub's own box is the first of `hosts` (name → ranks)."""

    def __init__(self, folder: Path, mode: str, hosts: dict[str, list[int]]) -> None:
        self.mode, self.hosts, self.outcome = mode, hosts, Outcome(folder)
        self.folder = folder
        self.size = sum(map(len, hosts.values()))
        self._pair, self._hubs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door = socket.create_server(("127.0.0.1", 0))
        # in a real run the hub serves it, and the agents carry the connections there
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if "nccl" in mode else None
        self._children: dict[int, str] = {}  # process → "hub", "relay a", "rank 0"
        self._passed = 0
        self._stopped: int | None = None

    def run(self, script: Callable[[], None]) -> Outcome:
        """`script` in each rank's process, to the end of all of them."""
        (self.folder / "run").mkdir(parents=True)
        spec = HubSpec("conformance", str(self.folder / "run"), str(self.folder), self.mode, SALT)
        self._fork("hub", lambda: Hub(spec, self._hubs).run())
        self._hubs.close()
        try:
            self._until(lambda: self._said(Ready))
            hub_socket = next(message.socket for message in self.outcome.told if isinstance(message, Ready))
            places = [
                RankPlace(rank, host, at, "cpu") for host, ranks in self.hosts.items() for at, rank in enumerate(ranks)
            ]
            self._tell(Form(places))
            for index, host in enumerate(self.hosts):
                self._start_host(host, "" if index else hub_socket, script)
            self._until(lambda: self._said(Finished, HubFailed) and not self._running("rank"))
            self._tell(Stop("the test is over"))
            self._until(lambda: not self._children)
        finally:
            for child in self._children:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            self._pair.close()
            self._door.close()
        return self.outcome

    def _start_host(self, host: str, hub_socket: str, script: Callable[[], None]) -> None:
        ranks, relay_socket = self.hosts[host], str(self.folder / f"{host}.sock")
        port = self._door.getsockname()[1]
        spec = RelaySpec(
            host, "127.0.0.1", port, ranks, self.size, SALT, "conformance", self.mode,
            hub_socket=hub_socket, relay_socket=relay_socket,
        )  # fmt: skip
        self._fork(f"relay {host}", lambda: Relay(spec).run())
        envelope = Envelope(
            EnvelopeController("127.0.0.1", port), self.size, len(self.hosts),
            EnvelopeWorker(host, ranks, CpuDevices(len(ranks))), self.mode, "conformance",
            relay_socket=relay_socket, store_port=self._store.port if self._store else 0,
        )  # fmt: skip
        for at, rank in enumerate(ranks):
            role = {environ.CLUSTER_JSON: blob.encode(envelope), environ.LOCAL_RANK: str(at), "OMP_NUM_THREADS": "1"}

            def program(role: dict[str, str] = role) -> None:
                os.environ.update(role)
                sys.orig_argv = [sys.executable, "train.py"]
                script()

            self._fork(f"rank {rank}", program)

    def _fork(self, name: str, program: Callable[[], Any]) -> None:
        child = os.fork()
        if child:
            self._children[child] = name
            return
        code = 1
        try:
            for sock in (self._pair, self._door):
                sock.close()
            if name != "hub":
                self._hubs.close()
            with (self.folder / f"{name}.log").open("w", buffering=1) as log:
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

    def _until(self, reached: Callable[[], bool]) -> None:
        """What a launcher, a door and the agents do, until then: pass connections on, report ends, hear the hub."""
        while not reached():
            ready, _, _ = select.select([self._pair, self._door], [], [], 0.01)
            if self._pair in ready and not self._hear():
                ready.remove(self._pair)
            if self._door in ready:
                self._pass_on()
            self._reap()

    def _hear(self) -> bool:
        body = self._pair.recv(1 << 18)
        if not body:
            assert not self._running("rank"), ["the hub is gone", *self.outcome.logs()]
            return False
        message = decode_message(body, FromHub, "the hub")
        self.outcome.told.append(message)
        if isinstance(message, Progress) and self._stopped is not None:
            os.kill(self._stopped, signal.SIGCONT)  # it has stood still while time went on
            self._stopped = None
        return True

    def _pass_on(self) -> None:
        sock, (address, _) = self._door.accept()
        head = sock.recv(8, socket.MSG_WAITALL)
        self._passed += 1
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


@pytest.fixture(scope="session")
def warm() -> None:
    """What torch loads at a first step, once for all ranks (2 s each else); and not where these tests don't run."""
    torch.set_num_threads(1)  # before anything forks: a pool of OpenMP threads does not survive it
    torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.0).step()


@pytest.fixture
def make_world(warm: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """``make_world(mode, {"here": [0, 1], "there": [2]})``; the first host is the hub's own box."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "1")  # a busy box starts a process slower than a tenth of a deadline

    def make(mode: str, hosts: dict[str, list[int]]) -> World:
        folder = tmp_path / f"w{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return World(folder, mode, hosts)

    yield make


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)
