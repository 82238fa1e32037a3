"""Runs the probes of a door, a few at once, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from flodl_cli.join_config import door_test
from flodl_cli.join_config import farm as farms
from flodl_cli.join_config.door_test import Door, Probe, Said, Tried
from flodl_cli.join_config.farm import Farm
from flodl_wire.faults import Refused

_AT_ONCE = 4  # logins; sshd turns away more than ten that have not yet proven their key


def try_door(farm: Farm) -> tuple[str, list[Tried]]:
    """Where was dialled, and what came of each probe. Raises Refused without ssh."""
    if shutil.which("ssh") is None:
        raise Refused("no-tool", "cannot try the door", "there is no ssh here", "install OpenSSH's client")
    key = os.path.join(farms.folder(farm.root, farm.label), "keys", "join_key")
    with tempfile.TemporaryDirectory(prefix="flodl-door-") as scratch, _answering(f"{scratch}/socket") as unix_socket:
        os.chmod(scratch, 0o711)  # the door's user need not be ours, and shall find the socket
        known_hosts = os.path.join(scratch, "known")
        with open(known_hosts, "w"):
            pass
        found: list[Tried] = []
        host, port = farm.controller.host, farm.controller.port
        for dialled in dict.fromkeys((host, "127.0.0.1")):  # behind NAT a box may not reach its own address
            door = Door(farm, key, known_hosts, unix_socket, dialled, port, _listing(farm))
            first, *rest = door_test.probes(door, _free_port())
            said = _run(first)
            shut = door_test.let_in(said, farm)
            if shut is None:
                return dialled, [*found, first.judge(said), *_try_all(rest)]
            if shut.code != "unreachable":
                break
            found = [
                Tried("address", "note", f"{host}:{port} leads nowhere from this box itself; tried over loopback:")
            ]
        assert shut is not None
        return dialled, [shut]


@contextlib.contextmanager
def _answering(path: str) -> Iterator[str]:
    """A Unix socket that anybody may dial, and that says so to whoever does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(path)
        os.chmod(path, 0o777)
        listener.listen()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    with listener.accept()[0] as visitor:
                        visitor.sendall(door_test.REACHED.encode())

        threading.Thread(target=answer, daemon=True).start()
        try:
            yield path
        finally:
            listener.shutdown(socket.SHUT_RDWR)


def _try_all(probes: list[Probe]) -> list[Tried]:
    """A few at once, but those of rsync one by one: an rrsync that may write lets nobody else in meanwhile."""
    tried: dict[str, Tried] = {}

    def lane(members: list[Probe]) -> None:
        for probe in members:
            tried[probe.name] = _try(probe)

    lanes = [[probe for probe in probes if probe.needs == "rsync"]]
    lanes += [[probe] for probe in probes if probe.needs != "rsync"]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(lane, lanes):
            pass
    return [tried[probe.name] for probe in probes]


def _try(probe: Probe) -> Tried:
    if shutil.which(probe.needs) is None:
        return Tried(probe.name, "skipped", f"there is no {probe.needs} here")
    return probe.judge(_run(probe))


def _run(probe: Probe) -> Said:
    """The end of the probe's command; one that forwards is given a visitor, and ended after the visit."""
    process = subprocess.Popen(
        probe.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
        env={**os.environ, "LC_ALL": "C"},
    )
    came: list[str] = []
    visitor = threading.Thread(target=_visit, args=(probe, process, came), daemon=True)
    if probe.visit:
        visitor.start()
    try:
        out, err = process.communicate(probe.stdin, timeout=probe.seconds)
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        code = None
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if probe.visit:
        visitor.join(probe.seconds)
    return Said(code, out + "".join(came), err)


def _visit(probe: Probe, process: subprocess.Popen[str], came: list[str]) -> None:
    """Knock as soon as the forward listens, hear what comes of it, and end the command."""
    until = time.monotonic() + probe.seconds - 1
    pause = threading.Event()
    while process.poll() is None and time.monotonic() < until:
        try:
            with socket.create_connection(("127.0.0.1", probe.visit), timeout=2) as sock:
                sock.settimeout(3)
                with contextlib.suppress(OSError):  # closed, once the far end has refused
                    came.append(sock.recv(100).decode("ascii", "replace"))
                break
        except OSError:
            pause.wait(0.05)
    process.terminate()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def _listing(farm: Farm) -> list[str] | None:
    """What the served folder holds, when this box has it."""
    try:
        return os.listdir(farm.served) if farm.door == "b" else None
    except OSError:
        return None
