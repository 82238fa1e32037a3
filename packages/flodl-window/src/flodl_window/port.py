"""Which addresses the one port listens on, and who holds it when it is taken."""

from __future__ import annotations

import contextlib
import errno
import socket
from dataclasses import dataclass, field
from pathlib import Path

from flodl_wire.faults import Broken, Refused, printable

EVERY_ADDRESS = ("0.0.0.0", "::")  # as controller.host: each worker dials the address that it knows
_LISTEN = "0A"  # TCP_LISTEN in /proc/net/tcp


@dataclass
class Bound:
    """Listening sockets of one port. `shown` is the address for people, `note` a line worth saying ("" when there is
    none).
    """

    socks: list[socket.socket]
    port: int
    shown: str
    loopback: bool
    note: str = ""
    others: list[str] = field(default_factory=list)


def is_address(host: str) -> bool:
    """True for a number, of either family."""
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError, ValueError):  # ValueError: a NUL byte in it
            socket.inet_pton(family, host)
            return True
    return False


def bind(controller_host: str, port: int, *, loopback: bool) -> Bound:
    """Bind the port: loopback alone when nobody comes from afar, else `controller_host` where that is an address of
    this box, else every address. Beside one particular address loopback is served too: agents, status and start of
    this box use it.

    Raises Refused naming the holder when the port is taken.
    """
    if loopback:
        socks = _listen_loopback(port)
        return Bound(socks, socks[0].getsockname()[1], "127.0.0.1", True)
    if controller_host in EVERY_ADDRESS:
        sock = _listen_everywhere(port)
        return Bound([sock], sock.getsockname()[1], "every address", False)
    address = _local_address(controller_host)
    if address is not None:
        family, ip = address
        sock = _listen(family, ip, port)
        port = sock.getsockname()[1]
        try:
            return Bound([sock, *_listen_loopback(port)], port, ip, False)
        except Refused:
            sock.close()
            raise
    sock = _listen_everywhere(port)
    note = f"{controller_host} is no address of this box: listening on every address instead"
    return Bound([sock], sock.getsockname()[1], "every address", False, note)


def bind_or_another(controller_host: str, port: int) -> Bound:
    """Loopback on `port`, else on any free one, with a note: for a run of this box alone, whose port nobody chose, so
    that two of them can go on side by side.
    """
    try:
        return bind(controller_host, port, loopback=True)
    except Refused as refused:
        if refused.code != "port-in-use":
            raise
        bound = bind(controller_host, 0, loopback=True)
        bound.note = f"{refused.why.removesuffix(' holds it')} holds port {port}: this run takes {bound.port}"
        return bound


def _listen_loopback(port: int) -> list[socket.socket]:
    """127.0.0.1, and ::1 where this box has it: people type both, and localhost may mean either."""
    socks = [_listen(socket.AF_INET, "127.0.0.1", port)]
    try:
        socks.append(_listen(socket.AF_INET6, "::1", socks[0].getsockname()[1]))
    except Broken:
        pass  # no IPv6 here
    except Refused:
        if port:  # asked for by number; one that the system chose may be in use on the other family
            socks[0].close()
            raise
    return socks


def _local_address(host: str) -> tuple[socket.AddressFamily, str] | None:
    """The first address `host` resolves to that this box can bind and others can reach; None when there is none.

    A name that the hosts file maps to loopback (Debian's 127.0.1.1) is no way in for others.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return None
    for family, _, _, _, where in found:
        ip = str(where[0])
        if ip.startswith("127.") or ip == "::1" or family not in (socket.AF_INET, socket.AF_INET6):
            continue
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((ip, 0, *where[2:]))
            return family, ip
    return None


def _listen(family: socket.AddressFamily, ip: str, port: int) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    # Not SO_REUSEPORT: a second live controller on the port must fail here.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        if family == socket.AF_INET6:
            sock.bind(socket.getaddrinfo(ip, port, family, socket.SOCK_STREAM)[0][4])
        else:
            sock.bind((ip, port))
        sock.listen(128)
    except OSError as err:
        sock.close()
        if err.errno == errno.EADDRINUSE:
            raise taken(port) from None
        if err.errno == errno.EACCES:
            raise Refused(
                "port-forbidden", f"cannot listen on port {port}", err.strerror or "", "use one above 1023"
            ) from None
        raise Broken("no-port", f"cannot listen on {ip}:{port}", str(err)) from None
    return sock


def _listen_everywhere(port: int) -> socket.socket:
    """Every address, IPv6 included where this box has it."""
    if socket.has_dualstack_ipv6():
        try:
            return _listen_dual(port)
        except OSError as err:
            if err.errno == errno.EADDRINUSE:
                raise taken(port) from None
    return _listen(socket.AF_INET, "0.0.0.0", port)


def _listen_dual(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind(("::", port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock


def taken(port: int) -> Refused:
    """The refusal for a port that somebody else listens on, with their name where it can be seen."""
    return Refused(
        "port-in-use",
        f"cannot listen on port {port}",
        f"{holder(port)} holds it",
        "end that, or give this run another: controller.port below cluster: in its file",
    )


def holder(port: int) -> str:
    """Who listens on `port`: command and pid, else what little can be seen."""
    inodes: dict[str, int] = {}
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                words = line.split()
                if words[3] == _LISTEN and int(words[1].rpartition(":")[2], 16) == port:
                    inodes[words[9]] = int(words[7])
    if not inodes:
        return "another process"
    links = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            for fd in (process / "fd").iterdir():
                with contextlib.suppress(OSError):
                    if str(fd.readlink()) in links:
                        return f"{_command(process)} (pid {process.name})"
    return f"a process of user {_user(next(iter(inodes.values())))}"


def _command(process: Path) -> str:
    words = (process / "cmdline").read_bytes().split(b"\0")
    text = " ".join(word.decode("utf-8", "replace") for word in words if word)
    return printable(text[:120] or (process / "comm").read_text(encoding="utf-8", errors="replace").strip())


def _user(uid: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
