"""The way to the controller's port, walked as an agent would: resolve, connect, speak, send something large.

What answers is asked for its state over plain HTTP: a run's window serves it, and so does the listener that an asking
probe opens on the controller (`listener.py`), which also tells its clock and takes a large body.
"""

from __future__ import annotations

import errno
import ipaddress
import shutil
import socket
import subprocess
import time
from contextlib import suppress

from flodl_probe.facts import Interface, Road
from flodl_probe.listener import BULK, MARK
from flodl_probe.question import Forward, Question
from flodl_probe.reading import interfaces
from flodl_wire import deadlines
from flodl_wire.address import Address, parse
from flodl_wire.config import Ssh
from flodl_wire.ssh_argv import ssh_argv

_MAX_ANSWER = 1 << 20
_ATTEMPTS = 4  # addresses of one name that are tried
_IP_MTU = 14  # linux/in.h: the path MTU the kernel knows of a connected socket


def walk(asked: Question, here: list[Interface], patience: float) -> Road | None:
    """The road of this host's join; None when no controller is known. Never raises."""
    if asked.controller is None:
        return None
    goal = parse(asked.dial, "the tunnel") if asked.dial else Address(asked.controller, asked.port)
    road = Road(str(Address(asked.controller, asked.port)))
    began = time.monotonic()
    if asked.forward is not None:
        road.kind = "ssh"
        _through_ssh(road, asked.forward, goal, patience)
    else:
        road.kind = "tunnel" if asked.dial else "direct"
        _directly(road, goal, asked.nonce, here, patience)
    road.took = round(time.monotonic() - began, 3)
    return road


def is_window(port: int) -> bool:
    """Whether it is a run that is served at `port` of this box."""
    seen = Road("")
    _directly(seen, Address("127.0.0.1", port), None, [], deadlines.deadline(5.0))
    return seen.answer == "window"


def _directly(road: Road, goal: Address, nonce: str | None, here: list[Interface], patience: float) -> None:
    found = interfaces.resolve(goal.host, patience)
    if not found:
        road.answer, road.text = "name", f"{goal.host} does not resolve"
        return
    road.resolved = [address for address in found if not _lacks_interface(address)]
    _look_at_route(road, here, goal.port)
    sock = None
    for address in road.resolved[:_ATTEMPTS]:
        try:
            sock = socket.create_connection((address, goal.port), patience / min(_ATTEMPTS, len(road.resolved)))
            break
        except OSError as err:
            road.answer, road.text = seen(err), err.strerror or str(err)
    if sock is None:
        return
    with sock:
        road.local_address = str(sock.getsockname()[0]).partition("%")[0]
        road.interface = interface_of(road.local_address, here) or road.interface
        with suppress(OSError):
            road.path_mtu = sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)
        _speak(road, sock, goal, nonce, patience)
    if road.answer == "probe":
        road.bulk = _bulk(road, goal, patience)


def _look_at_route(road: Road, here: list[Interface], port: int) -> None:
    """Which interface leads there, asked of the kernel: connecting a datagram socket sends nothing."""
    for address in road.resolved[:_ATTEMPTS]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect((address, port))
                road.local_address = str(sock.getsockname()[0]).partition("%")[0]
        except OSError:
            continue
        road.interface = interface_of(road.local_address, here)
        return


def interface_of(address: str, here: list[Interface]) -> str | None:
    for interface in here:
        if any(own.partition("/")[0] == address for own in interface.addresses):
            return interface.name
    if address.startswith("127."):  # all of 127/8 is this box
        return "lo"
    return None


def _lacks_interface(address: str) -> bool:
    try:
        number = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return True
    return number.version == 6 and number.is_link_local and "%" not in address


def seen(err: OSError) -> str:
    if isinstance(err, ConnectionRefusedError):
        return "refused"
    if isinstance(err, TimeoutError) or err.errno == errno.ETIMEDOUT:
        return "timeout"
    if err.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL):
        return "route"
    return "failed"


def _speak(road: Road, sock: socket.socket, goal: Address, nonce: str | None, patience: float) -> None:
    """Ask for the state and say who answered."""
    sock.settimeout(patience)
    request = f"GET /state.json HTTP/1.1\r\nHost: {goal}\r\nConnection: close\r\n\r\n"
    asked_at = time.time()
    try:
        sock.sendall(request.encode())
        answer = _read(sock, patience)
    except OSError as err:
        road.answer, road.text = "silent", err.strerror or str(err)
        return
    understand(road, answer, nonce, asked_at, time.time())


def understand(road: Road, answer: bytes, nonce: str | None, asked_at: float, came_at: float) -> None:
    """Who gave `answer`. Pure; whatever bytes came."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if not answer:
        road.answer, road.text = "silent", "it closes without a word"
    elif MARK in fields:
        if nonce is not None and fields[MARK] != nonce:
            road.answer, road.text = "other", "the listener of another probe answers"
            return
        road.answer = "probe"
        with suppress(ValueError):
            theirs = float(fields.get("x-flodl-time", ""))
            road.clock_offset = round(theirs - (asked_at + came_at) / 2, 3)
            road.clock_error = round((came_at - asked_at) / 2, 3)
    elif lines[0].startswith("HTTP/1.") and b'"phase"' in body and b'"joined_ranks"' in body:
        road.answer = "window"
    else:
        road.answer = "other"
        road.text = f"it says {lines[0][:60]!r}"


def _read(sock: socket.socket, patience: float) -> bytes:
    """Everything until its end."""
    until, data = time.monotonic() + patience, b""
    while len(data) < _MAX_ANSWER:
        sock.settimeout(max(0.01, until - time.monotonic()))
        part = sock.recv(1 << 16)
        if not part:
            break
        data += part
    return data


def _bulk(road: Road, goal: Address, patience: float) -> bool:
    """Whether a large body goes through: where a hop drops full-size packets, small ones pass and this hangs."""
    host = goal.host if road.kind == "tunnel" else next(iter(road.resolved), goal.host)
    head = f"POST /bulk HTTP/1.1\r\nHost: {goal}\r\nContent-Length: {BULK}\r\n\r\n"
    try:
        with socket.create_connection((host, goal.port), patience) as sock:
            sock.settimeout(patience)
            sock.sendall(head.encode() + bytes(BULK))
            return len(_read(sock, patience)) > BULK
    except OSError:
        return False


def _through_ssh(road: Road, forward: Forward, goal: Address, patience: float) -> None:
    """`ssh -W`: the same ssh, key and port as the join's own forward, to the same far end."""
    if shutil.which("ssh") is None:
        road.answer, road.text = "ssh", "ssh is not installed"
        return
    login = Ssh(None, forward.port, forward.user, forward.identity_file, forward.options)
    options = ["-o", f"ConnectTimeout={max(1, int(patience))}", "-W", str(goal)]
    argv = ssh_argv(forward.target, login, None, "", options)[:-1]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        process = subprocess.Popen(
            argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.PIPE, start_new_session=True
        )
        theirs.close()
        _speak(road, ours, goal, None, patience)
        if process.poll() is None and road.answer != "silent":
            process.terminate()
        try:
            _, errors = process.communicate(timeout=1.0 if road.answer != "silent" else patience)
        except subprocess.TimeoutExpired:
            process.kill()
            _, errors = process.communicate()
    if road.answer == "silent":
        words = [line for line in errors.decode("utf-8", "replace").strip().splitlines() if line.strip()]
        road.text = words[-1] if words else road.text
        # sshd's words when the far end of the forward does not take it, and when it forbids it
        road.answer = "refused" if "open failed: connect failed" in " ".join(words) else "ssh" if words else "silent"
