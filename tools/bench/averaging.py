"""Averaging: one round of the CPU plane against gloo's all_reduce of the same bytes over the same ranks, interleaved in
one run.

    python tools/bench/averaging.py [--quick] [--cases 'NAME;…']

A measurement is the time from the last rank's being ready to the last rank's having the result: for us the whole way of
a deposit through relay and hub, the weighted mean and its writing back; for gloo the bare sum. Prints a table, writes
build/bench/averaging.json (rows with case, ours, peer in ms, ratio > 1 = ours is faster). The case over a link of 1
Gbit/s makes network namespaces of its own and needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
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
from tools.bench.shaped_hosts import INTERFACE, ShapedHosts, impossible  # noqa: E402

MB = 1_000_000


@dataclass(frozen=True)
class Case:
    """`hosts`: ranks of each, the hub beside the first. `link`: a rate in bit/s between the hosts."""

    name: str
    hosts: tuple[int, ...]
    megabytes: float
    at_least: float | None = None
    link: int | None = None
    peer: str = "gloo"  # or a ceiling: memory, growth
    wire: str = "float32"  # ours; gloo's is float32
    outer: bool = False  # with a Nesterov step


CASES = [
    *(Case(f"one box, {n} ranks, {mb} MB", (n,), mb, 3.0) for n in (2, 4) for mb in (10, 100, 400)),
    Case("two hosts x two ranks, loopback, 100 MB", (2, 2), 100, 1.4),
    Case("two hosts x one rank, 1 Gbit/s, 100 MB", (1, 1), 100, 0.9, link=10**9),
    Case("two hosts x two ranks, 1 Gbit/s, 100 MB", (2, 2), 100, 0.9, link=10**9),
    *(
        Case(f"two hosts x one rank, 1 Gbit/s, 100 MB, {wire}", (1, 1), 100, least, link=10**9, wire=wire)
        for wire, least in (("bf16", 1.7), ("int8", 3.0))
    ),
    *(
        Case(f"four hosts x one rank, 1 Gbit/s, 100 MB, {wire}", (1, 1, 1, 1), 100, link=10**9, wire=wire)
        for wire in ("float32", "bf16", "int8")
    ),
    Case("two hosts x one rank, 1 Gbit/s, 100 MB, int8, Nesterov", (1, 1), 100, link=10**9, wire="int8", outer=True),
    Case("one box, 2 ranks, 100 MB, Nesterov", (2,), 100, outer=True),
    Case("four hosts x one rank, loopback, 100 MB", (1, 1, 1, 1), 100),
    Case("hub memory, four hosts, 400 MB", (1, 1, 1, 1), 400, 1.0, peer="memory"),
    Case("hub memory, four hosts, 400 MB, int8, Nesterov", (1, 1, 1, 1), 400, peer="memory", wire="int8", outer=True),
    *(
        Case(f"10,000 rounds of 0.2 MB, {wire}", (1, 1), 0.2, peer="growth", wire=wire, outer=wire == "int8")
        for wire in ("float32", "int8")
    ),
]
MANY = 10_000  # rounds
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
    spec = {
        "socket_path": hub_socket, "hosts": names, "ranks": total, "address": places[0][1],
        "wire": case.wire, "outer": case.outer,
    }  # fmt: skip
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
                "wire": case.wire,
                "outer": case.outer,
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
                str(int(case.megabytes * MB)),
                places[0][1],
                str(port),
            ]
            interface = "lo" if places[index][0] is None else INTERFACE
            fleet.start(argv, places[index][0], rank=True, env={"GLOO_SOCKET_IFNAME": interface})
            number += 1
    fleet.ready()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def measure(case: Case, rounds: int) -> dict[str, Any]:
    shaped = ShapedHosts(len(case.hosts), case.link) if case.link else None
    places: list[tuple[str | None, str]] = shaped.places if shaped else [(None, "127.0.0.1") for _ in case.hosts]
    ours, gloo = Fleet(), Fleet()
    try:
        with tempfile.TemporaryDirectory(prefix="flodl-bench-") as folder:
            start_ours(ours, case, Path(folder), places)
            for _ in range(2):  # the first touches every page, the second those of an encoded round
                ours.round()
            if case.peer == "memory":
                mine = statistics.median(ours.round() for _ in range(rounds))
                peak = hub_usage(ours)["peak_mb"]
                return row(case.name, peak, PEAK, PEAK / peak, unit="MB", at_least=case.at_least, round_ms=mine)
            if case.peer == "growth":
                return growth(case, ours)
            start_gloo(gloo, case, places)
            before = hub_usage(ours)
            mine, theirs, ratio = interleaved(ours.round, gloo.round, rounds)
            usage = hub_usage(ours)
            cpu = (usage["cpu_s"] - before["cpu_s"]) * 1e3 / rounds
            figures = {"hub_peak_mb": usage["peak_mb"], "hub_cpu_ms_a_round": cpu, "wire": case.wire}
            return row(case.name, mine, theirs, ratio, unit="ms", at_least=case.at_least, **figures)
    finally:
        ours.end()
        gloo.end()
        if shaped:
            shaped.close()


def growth(case: Case, ours: Fleet) -> dict[str, Any]:
    """The hub's memory after many rounds against what it was after a few."""
    for _ in range(200):
        ours.round()
    early = hub_usage(ours)["now_mb"]
    for _ in range(MANY):
        ours.round()
    usage = hub_usage(ours)
    ratio = early / usage["now_mb"]
    return row(case.name, usage["now_mb"], early, ratio, unit="MB", at_least=0.97, hub_cpu_s=usage["cpu_s"])


def hub_usage(fleet: Fleet) -> dict[str, float]:
    """The hub's resident memory now and at most, in MB, and the processor seconds it has taken."""
    hub = fleet.others[0]
    assert hub.stdin
    hub.stdin.write("\n")
    hub.stdin.flush()
    usage: dict[str, float] = json.loads(line(hub))
    return usage


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
        if case.link and impossible():
            print(f"skipped: {case.name}: {impossible()}")
            continue
        slow = case.megabytes > 100 or case.link
        rows.append(measure(case, (3 if slow else 5) if options.quick else (7 if slow else 15)))
        print(f"{case.name}: {rows[-1]['ratio']:.2f}", flush=True)
    return 0 if report("averaging", rows) else 1


if __name__ == "__main__":
    sys.exit(main())
