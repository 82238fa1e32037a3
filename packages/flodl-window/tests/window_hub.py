"""A hub that speaks the wire, as a process: ``python window_hub.py --pair FD``.

FAKE_HUB says what it does when the world forms:

train   (default) all come in, training, two epochs, finished
large   the same with a result of more than one datagram
idle    nothing; it only said Ready
fail    HubFailed, naming nobody
crash   exit 7
deaf    not even Ready; it ends with the pair
mute    as idle, and takes no connection
"""

from __future__ import annotations

import os
import socket
import sys

from flodl_wire.hub_messages import (
    MAX_DATAGRAM,
    EpochDone,
    Finished,
    Form,
    HubFailed,
    Large,
    Passed,
    Progress,
    RankIn,
    RankProgress,
    Ready,
    RelayIn,
    Stop,
    Taken,
    ToHub,
    TrainingBegan,
)
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.result import EpochResult, RunResult


def say(pair: socket.socket, message: object) -> None:
    body = encode_message(message)  # type: ignore[arg-type]
    if len(body) <= MAX_DATAGRAM:
        pair.send(body)
        return
    memory = os.memfd_create("large")
    os.write(memory, body)
    socket.send_fds(pair, [encode_message(Large(len(body)))], [memory])
    os.close(memory)


def train(pair: socket.socket, form: Form, epochs: int) -> None:
    for host in dict.fromkeys(place.host for place in form.places):
        say(pair, RelayIn(host))
    for place in form.places:
        say(pair, RankIn(place.rank))
    say(pair, TrainingBegan(f"training: {len(form.places)} ranks"))
    rates = [RankProgress(place.rank, 100.0, 3) for place in form.places]
    say(pair, Progress(0, 2, 50, 100, 200.0, 0.5, ranks=rates))
    say(pair, EpochDone(0, "epoch 1/2: loss 0.5"))
    result = RunResult("fake", "cpu_cadence", len(form.places), samples=200, samples_per_s=200.0, wall_s=1.0)
    result.epochs = [EpochResult(at, 0.5, 0.5, 100, {"accuracy": 0.97}) for at in range(epochs)]
    say(pair, Finished(result))


def main() -> int:
    deed = os.environ.get("FAKE_HUB", "train")
    pair = socket.socket(fileno=int(sys.argv[sys.argv.index("--pair") + 1]))
    sys.stdin.readline()
    if deed != "deaf":
        say(pair, Ready(""))
    while True:
        body, fds, _, _ = socket.recv_fds(pair, MAX_DATAGRAM, 4)
        if not body:
            return 0
        message = decode_message(body, ToHub, "the launcher")
        if isinstance(message, Passed) and deed != "mute":
            with socket.socket(fileno=fds.pop()) as sock:
                sock.sendall(b"passed " + message.head.encode() + b" " + message.address.encode())
            say(pair, Taken(message.number))
        elif isinstance(message, Form):
            if deed in ("train", "large"):
                train(pair, message, 2000 if deed == "large" else 2)
            elif deed == "fail":
                say(pair, HubFailed("schema-differs", "the models differ", "rank 1 has another layer"))
            elif deed == "crash":
                print("hub: something broke", file=sys.stderr)
                return 7
        elif isinstance(message, Stop):
            return 0
        for fd in fds:
            os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
