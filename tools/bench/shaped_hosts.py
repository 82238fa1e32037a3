"""Hosts on one box with links of a stated rate between them: network namespaces and the token bucket of tc. Root only.

Two are wired to each other, more to a bridge, each by a link that is held to the rate in both directions.
"""

from __future__ import annotations

import os
import shutil
import subprocess

INTERFACE = "flodlb0"  # in every host


class ShapedHosts:
    """`places[i]`: (network namespace, address) of host i. `close` takes everything away again."""

    def __init__(self, hosts: int, rate: int) -> None:
        """`rate` in bit/s."""
        stem = f"flodl-bench-{os.getpid()}"
        self._names = [f"{stem}-{index}" for index in range(hosts)]
        self._bridge = f"{stem}-bridge" if hosts > 2 else None
        self.places: list[tuple[str | None, str]] = [(n, f"10.99.77.{i + 1}") for i, n in enumerate(self._names)]
        for name in self._all():
            _ip("netns", "add", name)
        if self._bridge:
            _inside(self._bridge, "link add flodlbr type bridge", "link set flodlbr up")
            for index, name in enumerate(self._names):
                _pair(name, self._bridge, f"port{index}")
                _inside(self._bridge, f"link set port{index} master flodlbr", f"link set port{index} up")
                _shape(self._bridge, f"port{index}", rate)
        else:
            _pair(self._names[0], self._names[1], INTERFACE)
        for name, (_, address) in zip(self._names, self.places, strict=True):
            _inside(name, f"addr add {address}/24 dev {INTERFACE}", "link set lo up", f"link set {INTERFACE} up")
            _shape(name, INTERFACE, rate)

    def _all(self) -> list[str]:
        return [*self._names, *([self._bridge] if self._bridge else [])]

    def close(self) -> None:
        for name in self._all():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _pair(name: str, other: str, device: str) -> None:
    """A cable: `INTERFACE` in one namespace, `device` in the other."""
    _inside(name, f"link add {INTERFACE} type veth peer name {device} netns {other}")


def _shape(name: str, device: str, rate: int) -> None:
    shape = f"qdisc add dev {device} root tbf rate {rate}bit burst 256kb latency 50ms"
    subprocess.run(["tc", "-n", name, *shape.split()], check=True)


def _inside(name: str, *commands: str) -> None:
    for command in commands:
        _ip("-n", name, *command.split())


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def impossible() -> str:
    """Why there can be no shaped link here; "" when there can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    return f"needs {' and '.join(missing)} (Debian: iproute2)" if missing else ""
