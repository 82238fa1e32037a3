"""Network interfaces, what this box's own name resolves to, and who listens on a port."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import psutil

from flodl_probe.facts import Interface, PortUse

T = TypeVar("T")
_NAME_PATIENCE = 5.0


def read() -> list[Interface]:
    stats = psutil.net_if_stats()
    found = []
    for name, entries in sorted(psutil.net_if_addrs().items()):
        addresses = [with_prefix(entry.address, entry.netmask) for entry in entries if entry.family in _FAMILIES]
        known = stats.get(name)
        found.append(Interface(name, bool(known and known.isup), known.mtu if known else None, addresses))
    return found


_FAMILIES = (socket.AF_INET, socket.AF_INET6)


def with_prefix(address: str, netmask: str | None) -> str:
    """10.0.0.1 with 255.255.255.0 is 10.0.0.1/24; zones (%eth0) are dropped."""
    plain = address.partition("%")[0]
    try:
        bits = bin(int(ipaddress.ip_address(netmask or ""))).count("1")
    except ValueError:
        return plain
    return f"{plain}/{bits}"


def in_time(ask: Callable[[], T], patience: float) -> T | None:
    """What `ask` returns, or None when it takes longer (a name service that does not answer) or raises OSError."""
    answer: list[T] = []

    def run() -> None:
        try:
            answer.append(ask())
        except (OSError, UnicodeError):
            pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience)
    return answer[0] if answer else None


def own_addresses(name: str | None = None) -> list[str] | None:
    """What the system's own name resolves to; None when it does not, or not in time."""
    return resolve(name or socket.gethostname())


def resolve(name: str, patience: float = _NAME_PATIENCE) -> list[str] | None:
    """Addresses in the resolver's order, zones kept."""
    found = in_time(lambda: socket.getaddrinfo(name, None, type=socket.SOCK_STREAM), patience)
    return None if found is None else list(dict.fromkeys(str(entry[4][0]) for entry in found))


def port_use(port: int, proc: Path = Path("/proc")) -> PortUse:
    if not any(port in listening(_text(proc / "net" / name)) for name in ("tcp", "tcp6")):
        return PortUse(port)
    return PortUse(port, holder(port))


def holder(port: int) -> str:
    """Who listens, in words."""
    try:
        for entry in psutil.net_connections("tcp"):
            if entry.status == psutil.CONN_LISTEN and entry.laddr and entry.laddr.port == port and entry.pid:
                return f"{psutil.Process(entry.pid).name()} (pid {entry.pid})"
    except (psutil.Error, OSError):
        pass
    return "a process of another user"


def listening(table: str) -> set[int]:
    """The ports in state LISTEN in the text of /proc/net/tcp or tcp6."""
    ports = set()
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == "0A":
            try:
                ports.add(int(fields[1].rpartition(":")[2], 16))
            except ValueError:
                continue
    return ports


def _text(path: Path) -> str:
    try:
        return path.read_text("ascii", "replace")
    except OSError:
        return ""
