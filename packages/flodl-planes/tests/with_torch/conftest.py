"""A small world on this box: a hub and a relay as they really run, ranks forked from this process; no window, no
agent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices
from flodl_wire.hub_messages import Finished, Form, FromHub, HubFailed, Large, RankGone, Ready, Stop
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.specs import Envelope, EnvelopeController, EnvelopeWorker, HubSpec, RankPlace, RelaySpec

torch = pytest.importorskip("torch")
from torch.distributed import TCPStore  # noqa: E402 - behind the line that skips where torch is missing

sys.path.insert(0, str(Path(__file__).parent))  # a Trainer for tests is a module beside them
torch.set_num_threads(1)  # before anything forks: a pool of OpenMP threads does not survive it

GRACE_S = 1.0  # as the window weighs a failure (verdict.GRACE) before it ends the others, who may have words to say
PROGRAM = str(Path(sys.executable).parent / "flodl-planes")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the test's own, to stand in."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass
class Outcome:
    """How a world ended: each rank's exit code and output, and everything the hub told the launcher."""

    codes: dict[int, int] = field(default_factory=dict)
    output: dict[int, str] = field(default_factory=dict)
    told: list[FromHub] = field(default_factory=list)

    def said(self, kind: type) -> list:
        return [message for message in self.told if isinstance(message, kind)]


class SmallWorld:
    """Plays launcher and agent. `run` returns when hub, relay and ranks have all ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, script: Callable[[], None], ranks: int, mode: str, **variables: str) -> Outcome:
        """`script` runs in each rank's process as if it were its program; `variables` are set there besides its
        role."""
        folder = self.folder / f"world-{len(list(self.folder.iterdir()))}"
        (folder / "run").mkdir(parents=True)
        self.ranks, self.mode, self.paths = ranks, mode, folder
        self.outcome = Outcome()
        # in a real run the hub serves it, and the agents carry the connections there
        self.store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if "nccl" in mode else None
        pair, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pair.settimeout(60)
        hub = subprocess.Popen(
            [PROGRAM, "hub", "--pair", str(theirs.fileno())],
            stdin=subprocess.PIPE, pass_fds=[theirs.fileno()],
        )  # fmt: skip
        theirs.close()
        children, relay = {}, None
        try:
            spec = HubSpec("test-run", str(folder / "run"), str(folder), mode, salt_hex="ab" * 16)
            hub.stdin.write(msgspec.json.encode(spec) + b"\n")
            hub.stdin.flush()
            ready = self._listen(pair, Ready)
            pair.send(encode_message(Form([RankPlace(rank, "here", rank, "cpu") for rank in range(ranks)])))
            relay = self._relay(ready.socket)
            children = {rank: self._fork(rank, script, variables) for rank in range(ranks)}
            self._await_ranks(pair, children)
            self._listen(pair, Finished, HubFailed)
            pair.send(encode_message(Stop("the test is over")))
            relay.wait(30)
            hub.wait(30)
        finally:
            for child in children.values():
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            for process in filter(None, (relay, hub)):
                process.kill()
                process.communicate()
            pair.close()
        for rank in range(ranks):
            self.outcome.output[rank] = (folder / f"rank-{rank}.log").read_text()
        return self.outcome

    def _listen(self, pair: socket.socket, *until: type) -> FromHub:
        """The hub's words up to the first of these kinds, which may have come already."""
        while True:
            for message in self.outcome.told:
                if isinstance(message, until):
                    return message
            body, descriptors, _, _ = socket.recv_fds(pair, 1 << 20, 1)
            assert body, "the hub is gone"
            message = decode_message(body, FromHub, "the hub")
            if isinstance(message, Large):
                message = decode_message(os.pread(descriptors[0], message.size, 0), FromHub, "the hub")
                os.close(descriptors[0])
            self.outcome.told.append(message)

    def _relay(self, hub_socket: str) -> subprocess.Popen[bytes]:
        spec = RelaySpec(
            "here", "127.0.0.1", 1, list(range(self.ranks)), self.ranks, "ab" * 16, "test-run", self.mode,
            hub_socket=hub_socket, relay_socket=str(self.paths / "relay.sock"),
        )  # fmt: skip
        return subprocess.Popen([PROGRAM, "relay"], env={**os.environ, environ.RELAY_JSON: blob.encode(spec)})

    def _fork(self, rank: int, script: Callable[[], None], variables: dict[str, str]) -> int:
        envelope = Envelope(
            EnvelopeController("127.0.0.1", 1), self.ranks, 1,
            EnvelopeWorker("here", list(range(self.ranks)), CpuDevices(self.ranks)),
            self.mode, "test-run", relay_socket=str(self.paths / "relay.sock"),
            store_port=self.store.port if self.store else 0,
        )  # fmt: skip
        role = {environ.CLUSTER_JSON: blob.encode(envelope), environ.LOCAL_RANK: str(rank), "OMP_NUM_THREADS": "1"}
        return fork(script, {**variables, **role}, self.paths / f"rank-{rank}.log")

    def _await_ranks(self, pair: socket.socket, children: dict[int, int]) -> None:
        """What an agent does: report each rank's end as it comes."""
        waiting = {child: rank for rank, child in children.items()}
        end_the_rest = threading.Timer(GRACE_S, lambda: terminate(list(waiting)))
        while waiting:
            child, status = os.wait()
            if child not in waiting:
                continue
            rank = waiting.pop(child)
            code = self.outcome.codes[rank] = os.waitstatus_to_exitcode(status)
            why = f"killed by signal {-code}" if code < 0 else f"exit {code}"
            with suppress(OSError):
                pair.send(encode_message(RankGone(rank, code == 0, why, code if code >= 0 else None)))
            if code and not end_the_rest.ident:
                end_the_rest.start()
        end_the_rest.cancel()


def terminate(children: list[int]) -> None:
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGTERM)


def fork(script: Callable[[], None], variables: dict[str, str], log: Path) -> int:
    """A child process that runs `script` with these variables, its output in `log`; it ends as a Python program
    would."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        with log.open("w", buffering=1) as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
            sys.stdout = sys.stderr = sys.__stdout__ = sys.__stderr__ = file
            os.environ.update(variables)
            sys.orig_argv = [sys.executable, "train.py"]
            sys.excepthook = sys.__excepthook__
            warnings.resetwarnings()  # a user's program does not fail on them
            try:
                script()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except BaseException as error:
                sys.excepthook(type(error), error, error.__traceback__)
            finally:
                file.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@pytest.fixture
def small_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallWorld]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(environ.NET_TIMEOUT_SCALE, "1")  # a busy box starts a relay slower than a tenth of the deadlines
    folder = tmp_path / "w"
    folder.mkdir()
    yield SmallWorld(folder)


@pytest.fixture
def together(tmp_path: Path) -> Callable[[list[Callable[[], None]]], None]:
    """Runs scripts as processes beside each other, until all have ended; the test fails when one does."""

    def run(scripts: list[Callable[[], None]]) -> None:
        logs = [tmp_path / f"beside-{number}.log" for number in range(len(scripts))]
        waiting = {fork(script, {}, log): log for script, log in zip(scripts, logs, strict=True)}
        try:
            while waiting:
                child, status = os.wait()
                log = waiting.pop(child, None)
                assert log is None or status == 0, log.read_text()
        finally:
            for child in waiting:  # they may wait for ever for the one that failed
                os.kill(child, signal.SIGKILL)

    return run
