"""Averaging: one round of the CPU plane against gloo's all_reduce of the same bytes over the same ranks, interleaved in
one run.

    python tools/bench/averaging.py [--quick] [--cases 'NAME;…']

A measurement is the time from the last rank's being ready to the last rank's having the result: for us the whole way of
a deposit through relay and hub, the weighted mean and its writing back; for gloo the bare sum. Prints a table, writes
build/bench/averaging.json (rows with case, ours, peer in ms, ratio > 1 = ours is faster). The case over a link of 1
Gbit/s makes two network namespaces of its own and needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))  # run as a file, not by `make bench`

from tools.bench.rows import interleaved, report, row  # noqa: E402

MB = 1_000_000


@dataclass(frozen=True)
class Case:
    """`hosts`: ranks of each, the hub beside the first. `link`: a rate in bit/s between the hosts."""

    name: str
    hosts: tuple[int, ...]
    megabytes: int
    at_least: float | None = None
    link: int | None = None
    peer: bool = True


CASES = [
    *(Case(f"one box, {n} ranks, {mb} MB", (n,), mb, 3.0) for n in (2, 4) for mb in (10, 100, 400)),
    Case("two hosts x two ranks, loopback, 100 MB", (2, 2), 100, 1.4),
    Case("two hosts x one rank, 1 Gbit/s, 100 MB", (1, 1), 100, 0.9, link=10**9),
    Case("two hosts x two ranks, 1 Gbit/s, 100 MB", (2, 2), 100, 0.9, link=10**9),
    Case("four hosts x one rank, loopback, 100 MB", (1, 1, 1, 1), 100),
    Case("hub memory, four hosts, 400 MB", (1, 1, 1, 1), 400, peer=False),
]
PEAK = 1500  # MB that the hub may have resident


class Fleet:
    """Processes that do one round for every line they are sent; ended with the block."""

    def __init__(self) -> None:
        self.ranks: list[subprocess.Popen[str]] = []
        self.others: list[subprocess.Popen[str]] = []

    def start(self, command: list[str], namespace: str | None, *, rank: bool, env: dict[str, str] | None = None) -> Any:
        enter = ["ip", "netns", "exec", namespace] if namespace else []
        process = subprocess.Popen(
            [*enter, sys.executable, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", **(env or {})},
        )  # fmt: skip
        (self.ranks if rank else self.others).append(process)
        return process

    def ready(self) -> None:
        for process in self.ranks:
            if line(process) != "ready":
                raise SystemExit(f"a process did not start: {process.args!r}")

    def round(self) -> float:
        """Milliseconds from the last start to the last end."""
        for process in self.ranks:
            assert process.stdin
            process.stdin.write("\n")
            process.stdin.flush()
        times = [tuple(map(float, line(process).split())) for process in self.ranks]
        return (max(end for _, end in times) - max(start for start, _ in times)) * 1000

    def end(self) -> None:
        for process in self.ranks:
            assert process.stdin
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
        for process in self.ranks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(10)
        for process in (*self.ranks, *self.others):
            process.kill()
            process.wait()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    text = process.stdout.readline().strip()
    if not text:
        raise SystemExit(f"a process ended: {process.args!r}")
    return text


def start_ours(fleet: Fleet, case: Case, folder: Path, places: list[tuple[str | None, str]]) -> None:
    """Hub, relays and ranks of ours. `places[i]`: (network namespace, address) of host i."""
    roles = str(HERE / "plane_roles.py")
    total = sum(case.hosts)
    names = [f"h{i}" for i in range(len(case.hosts))]
    hub_socket = str(folder / "hub.sock")
    spec = {"socket_path": hub_socket, "hosts": names, "ranks": total, "address": places[0][1]}
    hub = fleet.start([roles, "hub", json.dumps(spec)], places[0][0], rank=False)
    port = int(line(hub))
    first = 0
    for index, count in enumerate(case.hosts):
        mine = list(range(first, first + count))
        first += count
        relay = {
            "host": names[index], "address": places[0][1], "controller_port": port, "ranks": mine,
            "hub_socket": "" if index else hub_socket, "relay_socket": str(folder / f"{index}.sock"),
        }  # fmt: skip
        fleet.start([roles, "relay", json.dumps(relay)], places[index][0], rank=False)
        for number in mine:
            options = {
                "number": number,
                "ranks": total,
                "nbytes": int(case.megabytes * MB),
                "socket_path": relay["relay_socket"],
            }
            fleet.start([roles, "rank", json.dumps(options)], places[index][0], rank=True)
    fleet.ready()


def start_gloo(fleet: Fleet, case: Case, places: list[tuple[str | None, str]]) -> None:
    """The peer's ranks, numbered as ours."""
    number, total, port = 0, sum(case.hosts), free_port()
    for index, count in enumerate(case.hosts):
        for _ in range(count):
            argv = [
                str(HERE / "peers" / "gloo_rank.py"),
                str(number),
                str(total),
                str(case.megabytes * MB),
                places[0][1],
                str(port),
            ]
            interface = "lo" if places[index][0] is None else LINK_INTERFACE
            fleet.start(argv, places[index][0], rank=True, env={"GLOO_SOCKET_IFNAME": interface})
            number += 1
    fleet.ready()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


LINK_INTERFACE = "flodlb0"


class Link:
    """Two network namespaces with a veth pair between them, each direction held to a rate."""

    def __init__(self, rate: int) -> None:
        self.names = [f"flodl-bench-{os.getpid()}-{side}" for side in "ab"]
        self.places: list[tuple[str | None, str]] = [(name, f"10.99.77.{i + 1}") for i, name in enumerate(self.names)]
        for name in self.names:
            ip("netns", "add", name)
        pair = f"link add {LINK_INTERFACE} type veth peer name {LINK_INTERFACE} netns {self.names[1]}"
        ip("-n", self.names[0], *pair.split())
        for name, (_, address) in zip(self.names, self.places, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", LINK_INTERFACE)
            for device in ("lo", LINK_INTERFACE):
                ip("-n", name, "link", "set", device, "up")
            shape = f"qdisc add dev {LINK_INTERFACE} root tbf rate {rate}bit burst 256kb latency 50ms"
            subprocess.run(["tc", "-n", name, *shape.split()], check=True)

    def close(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def cannot_link() -> str:
    """Why there can be no shaped link here; "" when there can."""
    if os.geteuid() != 0:
        return "needs root for network namespaces"
    missing = [tool for tool in ("ip", "tc") if not shutil.which(tool)]
    return f"needs {' and '.join(missing)} (Debian: iproute2)" if missing else ""


def measure(case: Case, rounds: int) -> dict[str, Any]:
    link = Link(case.link) if case.link else None
    places: list[tuple[str | None, str]] = link.places if link else [(None, "127.0.0.1") for _ in case.hosts]
    ours, gloo = Fleet(), Fleet()
    try:
        with tempfile.TemporaryDirectory(prefix="flodl-bench-") as folder:
            start_ours(ours, case, Path(folder), places)
            ours.round()  # the first touches every page
            if not case.peer:
                mine = statistics.median(ours.round() for _ in range(rounds))
                peak = hub_peak(ours)
                return row(case.name, peak, PEAK, PEAK / peak, unit="MB", at_least=1.0, round_ms=mine)
            start_gloo(gloo, case, places)
            mine, theirs, ratio = interleaved(ours.round, gloo.round, rounds)
            return row(case.name, mine, theirs, ratio, unit="ms", at_least=case.at_least, hub_peak_mb=hub_peak(ours))
    finally:
        ours.end()
        gloo.end()
        if link:
            link.close()


def hub_peak(fleet: Fleet) -> float:
    """The most memory the hub has had resident, in MB."""
    hub = fleet.others[0]
    assert hub.stdin
    hub.stdin.write("\n")
    hub.stdin.flush()
    return int(line(hub)) / MB


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, nothing above 100 MB")
    parser.add_argument("--cases", help="parts of case names, separated by semicolons")
    options = parser.parse_args(argv)
    wanted = options.cases.split(";") if options.cases else [""]
    rows = []
    for case in CASES:
        if not any(part in case.name for part in wanted) or (options.quick and case.megabytes > 100):
            continue
        if case.link and cannot_link():
            print(f"skipped: {case.name}: {cannot_link()}")
            continue
        slow = case.megabytes > 100 or case.link
        rows.append(measure(case, (3 if slow else 5) if options.quick else (7 if slow else 15)))
        print(f"{case.name}: {rows[-1]['ratio']:.2f}", flush=True)
    return 0 if report("averaging", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
