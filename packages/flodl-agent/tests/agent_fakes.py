"""A window that speaks the wire, and a box with its own executables: what the agent's shell tests are made of."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, TypeVar

import msgspec

from flodl_wire import preface
from flodl_wire.channel import Responder
from flodl_wire.deadlines import beat
from flodl_wire.devices import CpuDevices
from flodl_wire.faults import Fault
from flodl_wire.frames import MESSAGE
from flodl_wire.join_messages import Accept, Beat, Bye, Hello, JoinUp, Log, WorldFormed
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.specs import AgentSpec, Command, Envelope, EnvelopeController, EnvelopeWorker, RelaySpec

SALT = bytes(range(16))
PATIENCE = 30.0  # seconds a test waits for something that should come in a moment

T = TypeVar("T")
M = TypeVar("M", bound=msgspec.Struct)


class FakeLink:
    """One agent's link, seen from the window: everything it said, in order."""

    def __init__(self, sock: socket.socket, salt: bytes | None) -> None:
        self.sock = sock
        self.channel = Responder(lambda keyed: salt if keyed else None, kinds=(preface.JOIN,), max_message=16 << 20)
        self.heard: list[Any] = []
        self.ended = False
        self.silent = False  # beat no more
        self.trained = False  # said with every beat
        self.holds_open = False  # when the agent has said its last word, which it then waits for
        self.reading = threading.Event()
        self.reading.set()
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._beating: threading.Thread | None = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with contextlib.suppress(OSError, Fault):
            while data := self.sock.recv(65536):
                self.reading.wait()
                try:
                    frames = self.channel.receive_data(data)
                finally:
                    with self._sending:
                        self.sock.sendall(self.channel.data_to_send())
                with self._changed:
                    self.heard += [decode_message(frame.body, JoinUp, "the agent") for frame in frames]
                    self._changed.notify_all()
        if not self.holds_open:
            with contextlib.suppress(OSError):
                self.sock.shutdown(socket.SHUT_RDWR)
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def send(self, message: msgspec.Struct) -> None:
        with self._sending:
            self.channel.send(MESSAGE, encode_message(message))
            self.sock.sendall(self.channel.data_to_send())

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)
        self.sock.close()

    def wait_for(self, kind: type[M], true: Callable[[M], bool] = lambda message: True) -> M:
        """The first message of that kind for which `true`."""
        return self.wait(lambda: next((m for m in self.heard if isinstance(m, kind) and true(m)), None), kind.__name__)

    def wait_end(self) -> None:
        self.wait(lambda: self.ended or None, "the link's end")

    def wait(self, look: Callable[[], Any], what: str) -> Any:
        until = time.monotonic() + PATIENCE
        with self._changed:
            while (found := look()) is None:
                if not self._changed.wait(until - time.monotonic()):
                    raise AssertionError(f"no {what} in {PATIENCE} s; heard {self.heard}")
            return found

    def all(self, kind: type[M]) -> list[M]:
        with self._changed:
            return [message for message in self.heard if isinstance(message, kind)]

    def lines(self, rank: int | None, stream: str | None = None) -> list[str]:
        logs = [log for log in self.all(Log) if log.rank == rank and (stream is None or log.stream == stream)]
        return [line for log in logs for line in log.lines]

    def wait_line(self, rank: int | None, text: str) -> None:
        self.wait(lambda: any(text in line for line in self._lines_locked(rank)) or None, f"line {text!r}")

    def _lines_locked(self, rank: int | None) -> list[str]:
        return [line for log in self.heard if isinstance(log, Log) and log.rank == rank for line in log.lines]

    def accept(self, ranks: list[int], instance: str = "instance", args: list[str] | None = None) -> None:
        """Let it in, and beat from here on."""
        self.wait_for(Hello)
        self.send(Accept(ranks, 30.0, instance, args=args))
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()

    def _beat(self) -> None:
        with contextlib.suppress(OSError):
            while not self.silent and not self.ended:
                self.send(Beat(self.trained))
                threading.Event().wait(beat())

    def answer_bye(self) -> None:
        self.wait_for(Bye)
        self.close()


class FakeWindow:
    """Listens on loopback; `link()` is the next agent. A HEAD on the way is answered, as the real door does."""

    def __init__(self, salt: bytes | None = SALT, port: int = 0) -> None:
        self.salt = salt
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(PATIENCE)
        self.port: int = self.listener.getsockname()[1]
        self.links: list[FakeLink] = []

    def link(self) -> FakeLink:
        while True:
            sock, _ = self.listener.accept()
            sock.settimeout(PATIENCE)
            if sock.recv(1, socket.MSG_PEEK) != b"H":
                break
            sock.recv(4096)
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            sock.close()
        sock.settimeout(None)
        self.links.append(FakeLink(sock, self.salt))
        return self.links[-1]

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.listener.close()

    def spec(self, host: str = "node-a", ranks: int = 1, **more: Any) -> AgentSpec:
        return AgentSpec(
            host, "127.0.0.1", self.port, salt_hex=SALT.hex(), local_devices=CpuDevices(ranks), roster_host=True, **more
        )


def formed(argv: list[str], path: Path | str, ranks: list[int] | None = None, **more: Any) -> WorldFormed:
    """A world of this one host. `more`: mode, env, cwd, relay=False."""
    ranks = ranks if ranks is not None else [0]
    mode = more.get("mode", "cpu_sync")
    worker = EnvelopeWorker("node-a", ranks, CpuDevices(len(ranks)), path=str(path))
    envelope = Envelope(EnvelopeController("10.9.9.9", 9), len(ranks), 1, worker, mode, "run-1")
    relay = RelaySpec("node-a", "10.9.9.9", 9, ranks, len(ranks), SALT.hex(), "run-1", mode)
    command = Command(argv, more.get("env", {}), more.get("cwd", ""))
    return WorldFormed(envelope, relay if more.get("relay", mode != "torch") else None, command)


FAKE_RELAY = """
import os, signal, socket
from flodl_wire import blob, environ
from flodl_wire.specs import RelaySpec
spec = blob.decode(os.environ[environ.RELAY_JSON], RelaySpec, "RELAY_JSON")
listener = socket.socket(socket.AF_UNIX)
listener.bind(spec.relay_socket)
listener.listen()
print("relay of", spec.host, spec.controller_host, spec.controller_port, flush=True)
signal.pause()
"""


class Box:
    """A folder that looks to the agent like an installation of its own: bin/ with python and the flodl executables a
    test wants.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir(parents=True)
        venv = Path(sys.executable).parent.parent
        (self.bin / "python").symlink_to(sys.executable)
        (root / "pyvenv.cfg").write_text((venv / "pyvenv.cfg").read_text())
        (root / "lib").symlink_to(venv / "lib")
        self.script("flodl-agent", "import sys\nfrom flodl_agent.main import main\nsys.exit(main())\n")
        self.script("flodl-planes", FAKE_RELAY)
        self.project = root / "project"
        self.project.mkdir()
        self.running: list[Running] = []

    def script(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!{self.bin / 'python'}\n{text}")
        path.chmod(0o755)
        return path

    def environment(self, **more: str) -> dict[str, str]:
        here = {"HOME": str(self.root), "PATH": "/usr/bin:/bin", "XDG_RUNTIME_DIR": str(self.root)}
        return {**os.environ, **here, **more}

    def agent(self, spec: AgentSpec, **more: str) -> Running:
        """`flodl-agent run`, the spec written to its stdin, which stays open."""
        running = self.start("run", self.environment(**more))
        running.write(msgspec.json.encode(spec) + b"\n")
        return running

    def start(self, verb: str, environment: dict[str, str], *before: str) -> Running:
        self.running.append(Running([*before, self.bin / "flodl-agent", verb], environment, self.root))
        return self.running[-1]

    def close(self) -> None:
        for running in self.running:
            running.close()


class Running:
    """A started executable; its stdin open, its output in files."""

    def __init__(self, argv: list[Path | str], environment: dict[str, str], cwd: Path) -> None:
        self._out = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self._err = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=self._out,
            stderr=self._err,
            env=environment,
            cwd=cwd,
            start_new_session=True,
        )

    def write(self, data: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close_stdin(self) -> None:
        assert self.process.stdin
        self.process.stdin.close()

    def wait(self) -> int:
        return self.process.wait(PATIENCE)

    def said(self) -> str:
        """Its stderr so far."""
        return _text(self._err)

    def printed(self) -> str:
        return _text(self._out)

    def close(self) -> None:
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            self._out.close()
            self._err.close()


def _text(file: IO[bytes]) -> str:
    return os.pread(file.fileno(), 1 << 20, 0).decode(errors="replace")


def alive(mark: str) -> list[int]:
    """Pids of the processes that carry `mark` in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark.encode() in (entry / "environ").read_bytes() and " Z " not in (entry / "stat").read_text():
                    found.append(int(entry.name))
    return found


def wait_gone(mark: str) -> None:
    """Until no process carries `mark`."""
    wait_until(lambda: None if alive(mark) else True, f"end of {mark}")


def wait_until(look: Callable[[], T | None], what: str) -> T:
    """What `look` finds, as soon as it does: for the few things nobody tells us of."""
    until = time.monotonic() + PATIENCE
    while (found := look()) is None:
        if time.monotonic() > until:
            raise AssertionError(f"no {what} in {PATIENCE} s")
        threading.Event().wait(0.01)
    return found
