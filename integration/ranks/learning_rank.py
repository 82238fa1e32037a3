"""A rank without torch that learns: a linear model by SGD with momentum, in numpy, saved and put back as torch ranks
are.

What it ends with hardly depends on who did which samples, so a run that was disturbed can be held against one that
was not. `--record` writes down every span that this rank has delivered.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import numpy as np
from linear_problem import BATCH, MOMENTUM, RATE, WIDTH, problem
from plain_rank import follow

from flodl_planes.plane.layout import lay_out
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.meter import Meter
from flodl_planes.rank.windows import cut
from flodl_planes.role.place import local_cluster, read_envelope
from flodl_wire.faults import Fault
from flodl_wire.plane_messages import (
    Deposit,
    EvalDone,
    Plan,
    RankHello,
    Round,
    TensorSpec,
    Terms,
)


def parse() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--samples", type=int, default=480)
    p.add_argument("--batch-size", type=int, default=BATCH)
    p.add_argument("--epochs", type=int, default=3)
    p.add_argument("--batch-ms", type=float, default=4.0)
    p.add_argument("--checkpoint-every", default="0.2", help="seconds with a point in it, else epochs")
    p.add_argument("--stall-timeout", type=float)
    p.add_argument("--max-failure", type=int)
    p.add_argument("--resume")
    p.add_argument("--record", type=Path)
    p.add_argument("--wire", default="float32")
    p.add_argument("--outer", help="an outer optimizer, with a reach that its rare averages stand")
    p.add_argument("--linger", type=float, default=0.0, help="seconds of work of its own behind the training")
    p.add_argument("--ballast", type=int, default=1, help="further floats in the model")
    return p.parse_args()


def state_file(momentum: np.ndarray) -> Segment:
    """A safetensors file with one tensor."""
    header = {"momentum": {"dtype": "F32", "shape": [WIDTH], "data_offsets": [0, momentum.nbytes]}}
    text = json.dumps(header).encode().ljust(128)
    segment = Segment.create("state", 8 + len(text) + momentum.nbytes)
    segment.buffer[:] = len(text).to_bytes(8, "little") + text + momentum.tobytes()
    return segment


def main() -> int:
    given = parse()
    place, envelope = local_cluster(), read_envelope()
    assert envelope is not None, "started by a run only"
    truth, data = problem(given.samples)
    wanted = data @ truth
    every = float(given.checkpoint_every) if "." in given.checkpoint_every else int(given.checkpoint_every)
    terms = Terms(
        mode=envelope.mode, dataset=given.samples, batch_size=given.batch_size, epochs=given.epochs, seed=0,
        evaluates=True, max_failure=given.max_failure, checkpoint_every=every, stall_timeout=given.stall_timeout,
        resume=given.resume, wire=given.wire,
        outer={"kind": given.outer, "lr": 0.7, "momentum": 0.5} if given.outer else {},
    )  # fmt: skip
    tensors = [
        TensorSpec("weight", [WIDTH], "F32", "param"),
        TensorSpec("ballast", [given.ballast], "F32", "param"),
        TensorSpec("steps", [], "I64", "buffer"),
    ]
    layout = lay_out(tensors)
    live = Segment.create("live", layout.total_bytes)
    weight = live.array[: 4 * WIDTH].view(np.float32)
    momentum = np.zeros(WIDTH, np.float32)
    signature = hashlib.sha256(repr(tensors).encode()).hexdigest()
    hello = RankHello(place.rank, terms, tensors, layout.sections, signature, place.device)
    plane = RankPlane.connect(envelope.relay_socket, hello, live)
    print(f"rank {place.rank} of {place.world_size} on {place.host}, pid {os.getpid()}", flush=True)

    def work(plan: Plan) -> Deposit:
        if plan.evaluate is not None:
            off = float(np.linalg.norm(weight - truth))
            plane.send(EvalDone(plan.evaluate, {"off": off}, 0.1))
        if plan.save is not None:
            plane.send_state(plan.save, state_file(momentum), 0.1)
        order = np.random.RandomState(plan.epoch).permutation(given.samples)
        meter = Meter()
        for start, count in cut(plan.spans, given.batch_size):
            began = time.perf_counter()
            indices = order[start : start + count]
            error = data[indices] @ weight - wanted[indices]
            momentum[:] = MOMENTUM * momentum + data[indices].T @ error / count
            weight[:] -= RATE * momentum
            time.sleep(given.batch_ms / 1e3)  # plays a device's pace
            meter.done(began, time.perf_counter(), count, worked=True)
            meter.lost(float((error**2).mean()), count)
        if given.record:  # before anybody can have it: what dies in between is done again by another
            with (given.record / f"{os.getpid()}.jsonl").open("a") as file:
                print(json.dumps([plan.epoch, plan.spans]), file=file)
        return meter.deposit(plan.window)

    def averaged(done: Round) -> None:
        if done.given and done.state:
            momentum[:] = np.frombuffer(bytes(plane.restored()[-momentum.nbytes :]), np.float32)
            print("momentum is back", flush=True)

    code = follow(plane, place.rank, work, averaged)
    time.sleep(given.linger)  # plays work of its own
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Fault as fault:
        sys.exit(fault.render())
