"""A rank of the CPU plane without torch: the model is a row of numbers, a batch takes as long as it is told.

Every step adds rank + 1 to each number, so that what an average should be can be told by hand.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.meter import Meter
from flodl_planes.rank.windows import cut
from flodl_planes.role.place import local_cluster, read_envelope
from flodl_wire.faults import Fault
from flodl_wire.plane_messages import (
    Applied,
    Deposit,
    Dismiss,
    EvalDone,
    Finish,
    Leaving,
    Plan,
    RankHello,
    Round,
    TensorSpec,
    Terms,
)

HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31mred\x1b[0m \N{RIGHT-TO-LEFT OVERRIDE}gnp.exe"


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--numbers", type=int, default=1000)
    p.add_argument("--samples", type=int, default=240)
    p.add_argument("--batch-size", type=int, default=8)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--batch-ms", type=float, default=5.0)
    p.add_argument("--slow", default="-1:1", metavar="RANK:FACTOR")
    p.add_argument("--exit", default="-1:0:0", metavar="RANK:WINDOW:CODE", help="leave with CODE in that window")
    p.add_argument("--max-failure", type=int)
    p.add_argument("--wire", default="float32")
    p.add_argument("--hold", type=Path, help="begin the last epoch when this file is there")
    p.add_argument("--stop", default="-1:told", metavar="RANK:WHERE", help="stop when it is told to leave, or has left")
    p.add_argument("--linger", type=Path, help="behind the training wait for this file")
    p.add_argument("--hostile", action="store_true", help="print and measure what could break a terminal or a page")
    return p.parse_args()


def main() -> int:
    given = parse()
    place, envelope = local_cluster(), read_envelope()
    assert envelope is not None, "started by a run only"
    terms = Terms(
        mode=envelope.mode,
        dataset=given.samples,
        batch_size=given.batch_size,
        epochs=given.epochs,
        seed=0,
        evaluates=True,
        max_failure=given.max_failure,
        wire=given.wire,
    )
    tensors = [TensorSpec("numbers", [given.numbers], "F32", "param"), TensorSpec("steps", [], "I64", "buffer")]
    layout = lay_out(tensors)
    live = Segment.create("live", layout.total_bytes)
    numbers = live.array[: 4 * given.numbers].view(np.float32)
    signature = hashlib.sha256(repr(tensors).encode()).hexdigest()
    hello = RankHello(place.rank, terms, tensors, layout.sections, signature, place.device)
    plane = RankPlane.connect(envelope.relay_socket, hello, live)
    print(f"rank {place.rank} of {place.world_size} on {place.host}, pid {os.getpid()}", flush=True)

    slow_rank, factor = given.slow.split(":")
    pause = given.batch_ms / 1e3 * (float(factor) if int(slow_rank) == place.rank else 1.0)
    leave_rank, leave_window, leave_code = map(int, given.exit.split(":"))

    def work(plan: Plan) -> Deposit:
        if (place.rank, plan.window) == (leave_rank, leave_window):
            print(f"rank {place.rank} leaves in window {plan.window}", flush=True)
            sys.exit(leave_code)
        if plan.evaluate is not None:
            metrics = {"accuracy": float(numbers[0])}
            if given.hostile:
                metrics = {"accuracy": 1 - 0.5 ** (plan.evaluate + 1), "<b>metric</b>": 0.5**plan.evaluate}
            plane.send(EvalDone(plan.evaluate, metrics, 0.1))
        while given.hold and plan.epoch == given.epochs - 1 and not given.hold.exists():
            time.sleep(0.02)
        if given.hostile:
            print(f"window {plan.window}: {HOSTILE}", flush=True)
        meter = Meter()
        for _, samples in cut(plan.spans, given.batch_size):
            began = time.perf_counter()
            time.sleep(pause)  # plays a device's pace
            numbers[:] += place.rank + 1
            meter.done(began, time.perf_counter(), samples, worked=True)
            meter.lost(1 / (1 + plan.window / 8) if given.hostile else 1.0, samples)
        return meter.deposit(plan.window)

    stop_rank, stop_where = given.stop.split(":")

    def stop_at(where: str) -> None:
        if (place.rank, where) == (int(stop_rank), stop_where):
            os.kill(os.getpid(), signal.SIGSTOP)

    code = follow(plane, place.rank, work, told=lambda: stop_at("told"))
    stop_at("left")
    while given.linger and not given.linger.exists():
        time.sleep(0.02)
    return code


def follow(
    plane: RankPlane,
    rank: int,
    work: Callable[[Plan], Deposit],
    averaged: Callable[[Round], None] = lambda done: None,
    told: Callable[[], None] = lambda: None,
) -> int:
    """The exit code. `work` does a plan; its deposit goes out with what the Trainer's ranks tell of the round before.
    `averaged` is called behind each average, before it is confirmed; `told` when it is told to leave.
    """
    sync_ms, idle_since = 0.0, time.perf_counter()  # of averages since the last deposit; since when the rank waits

    def hand_in(plan: Plan) -> None:
        nonlocal sync_ms, idle_since
        waited = (time.perf_counter() - idle_since) * 1e3
        deposit = work(plan)
        deposit.wait_ms, deposit.sync_ms = waited, sync_ms
        plane.send(deposit)
        sync_ms, idle_since = 0.0, time.perf_counter()

    while True:
        message = plane.receive()
        if isinstance(message, Plan):
            hand_in(message)
        elif isinstance(message, Round):
            done = plane.reduce(message)
            sync_ms += done.ms
            averaged(done.round)
            if done.round.confirm:
                plane.send(Applied(done.round.round, done.ms))
            if plan := done.round.plans.get(str(rank)):
                hand_in(plan)
        elif isinstance(message, Finish):
            told()
            plane.send(Leaving())
            plane.close()
            return 0
        elif isinstance(message, Dismiss):
            print(f"dismissed: {message.reason}", file=sys.stderr)
            return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as fault:
        sys.exit(fault.render())
