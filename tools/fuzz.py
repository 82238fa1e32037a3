"""`make fuzz`: mutated bytes against the codec, and strangers against a live port while good hosts join.

Whatever comes in, the codec answers with frames or with a Fault, never with anything else, and neither side's memory
grows. Inputs are valid conversations with bytes flipped, cut, doubled, swapped or made huge; `--seed` repeats a run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from flodl_wire import frames, preface
from flodl_wire.channel import Initiator, Responder
from flodl_wire.faults import Fault
from flodl_wire.frames import FrameDecoder
from flodl_wire.join_messages import Accept, Beat, DeviceOffer, Hello, JoinDown
from flodl_wire.message_examples import LINKS, by_link
from flodl_wire.messages import decode_message, encode_message

INPUTS, CONNECTIONS = 1_000_000, 20_000
GROWTH = 32 << 20  # bytes a process may grow by: what allocators keep, not what a leak makes of so many inputs
SALT = bytes(range(16))
CROWD = 64  # connections at once
PATIENCE = 5.0  # seconds a good host or a reader may wait in the crowd


class Mutator:
    """Valid bytes made wrong, the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)

    def __call__(self, data: bytes) -> bytes:
        made = bytearray(data)
        for _ in range(self.dice.randint(1, 3)):
            self._once(made)
        return bytes(made)

    def _once(self, made: bytearray) -> None:
        dice = self.dice
        at = dice.randrange(len(made) + 1)
        match dice.randrange(8):
            case 0 if made:
                made[at % len(made)] ^= 1 << dice.randrange(8)
            case 1:
                del made[at:]
            case 2:
                made[at:at] = dice.randbytes(dice.randint(1, 24))
            case 3:
                del made[at : at + dice.randint(1, 24)]
            case 4:
                made[at : at + 4] = dice.choice((b"\xff" * 4, bytes(4), b"\x00\x00\x00\x80", b"\xff\xff\x00\x00"))
            case 5:
                made += made[:at]
            case 6 if made:
                made[at % len(made)] = dice.choice(b'{}[]",:\\\x00\x80\xff09e-')
            case _:
                made[at : at + 8] = dice.randbytes(8)


# the codec

Try = Callable[[Mutator], None]


def bodies() -> list[bytes]:
    """One JSON body of every message there is."""
    return [json.dumps(body).encode() for link in by_link()["links"].values() for body in link.values()]


def codec_tries() -> list[tuple[int, Try]]:
    """Each with its share of a hundred inputs; a handshake costs what fifty frames do."""
    texts = bodies()
    stream = b"".join(frames.frame_head(frames.MESSAGE, len(text)) + text for text in texts[:6])

    unions = list(LINKS.values())

    def one_message(mutate: Mutator) -> None:
        decode_message(mutate(mutate.dice.choice(texts)), mutate.dice.choice(unions), "fuzz")

    def a_stream_of_frames(mutate: Mutator) -> None:
        decoder = FrameDecoder(max_message=1 << 16)
        data = mutate(stream)
        cut = mutate.dice.randrange(len(data) + 1)
        for piece in (data[:cut], data[cut:]):
            decoder.feed(piece)

    def a_preface(mutate: Mutator) -> None:
        preface.parse(mutate(preface.Preface(preface.JOIN, True).encode()))

    def a_handshake(mutate: Mutator) -> None:
        dialler = Initiator(preface.JOIN, SALT)
        acceptor = Responder(lambda keyed: SALT, kinds=(preface.JOIN,))
        acceptor.receive_data(mutate(dialler.data_to_send()))
        dialler.receive_data(mutate(acceptor.data_to_send()))

    def sealed_records(mutate: Mutator) -> None:
        dialler = Initiator(preface.JOIN, SALT)
        acceptor = Responder(lambda keyed: SALT, kinds=(preface.JOIN,))
        acceptor.receive_data(dialler.data_to_send())
        dialler.receive_data(acceptor.data_to_send())
        dialler.send(frames.MESSAGE, mutate(mutate.dice.choice(texts)))
        data = dialler.data_to_send()
        acceptor.receive_data(mutate(data) if mutate.dice.random() < 0.7 else data)

    return [(50, one_message), (35, a_stream_of_frames), (12, a_preface), (2, a_handshake), (1, sealed_records)]


def fuzz_codec(inputs: int, seed: int) -> str:
    """A line on how it went. Raises whatever was raised that is no Fault, with the number that repeats it."""
    mutate = Mutator(seed)
    shares = [each for share, each in codec_tries() for _ in range(share)]
    outcomes: Counter[str] = Counter()
    warm = 0
    began = time.perf_counter()
    for number in range(inputs):
        mutate.dice.seed(f"{seed}:{number}")
        try:
            shares[number % len(shares)](mutate)
            outcomes["taken"] += 1
        except Fault as fault:
            outcomes[fault.code] += 1
        except Exception as err:
            raise AssertionError(f"input {number} of seed {seed} raised {err!r}") from err
        if number == inputs // 10:
            gc.collect()
            warm = resident("self")
    gc.collect()
    growth = resident("self") - warm
    assert growth < GROWTH, f"memory grew by {growth >> 20} MiB"
    spent = time.perf_counter() - began
    most = ", ".join(f"{code} {count}" for code, count in outcomes.most_common(6))
    return f"codec: {inputs} inputs in {spent:.1f} s ({most}); memory grew by {growth / (1 << 20):.1f} MiB"


def resident(pid: int | str) -> int:
    """Bytes of memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


# the port


def stranger(mutate: Mutator) -> bytes:
    """What one of them sends."""
    dice = mutate.dice
    handshake = Initiator(dice.choice((preface.JOIN, preface.RELAY, preface.STORE)), dice.choice((None, SALT)))
    match dice.randrange(6):
        case 0:
            return dice.randbytes(dice.randint(0, 3000))
        case 1:
            return mutate(b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        case 2:
            return mutate(b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n")
        case 3:
            return mutate(handshake.data_to_send()) + dice.randbytes(dice.randint(0, 500))
        case 4:
            return handshake.data_to_send() + dice.randbytes(dice.randint(0, 5000))
        case _:
            return bytes(handshake.data_to_send()[: dice.randint(0, 56)])


async def assault(port: int, number: int, seed: int) -> None:
    """One stranger from one of 250 addresses: it sends, reads a little or nothing, and leaves one way or another."""
    mutate = Mutator(0)
    mutate.dice.seed(f"{seed}:{number}")
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setblocking(False)
    try:
        sock.bind((f"127.0.1.{number % 250 + 1}", 0))
        await loop.sock_connect(sock, ("127.0.0.1", port))
        await loop.sock_sendall(sock, stranger(mutate))
        manner = mutate.dice.randrange(3)
        if manner == 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # leave by reset
        elif manner == 1:
            sock.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(loop.sock_recv(sock, 4096), 0.5)
    except (OSError, asyncio.TimeoutError):
        pass
    finally:
        sock.close()


async def beats(channel: Initiator, writer: asyncio.StreamWriter) -> None:
    """A host that takes part is heard every second; cancelled, it closes its link."""
    try:
        while True:
            channel.send(frames.MESSAGE, encode_message(Beat()))
            writer.write(channel.data_to_send())
            await asyncio.sleep(1.0)
    finally:
        await closed(writer)


async def closed(writer: asyncio.StreamWriter) -> None:
    """Close it and wait until it is: what the collector finds unclosed is a warning in somebody else's test."""
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def good_host(port: int, name: str) -> tuple[float, asyncio.Task[None]]:
    """A host joins as in life; seconds until it is in, and what keeps it there."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    channel = Initiator(preface.JOIN, SALT)
    channel.send(frames.MESSAGE, encode_message(Hello(name, name, [DeviceOffer("cpu", 0, "cpu")])))
    writer.write(channel.data_to_send())
    while True:
        data = await reader.read(65536)
        assert data, f"{name} was turned away"
        for frame in channel.receive_data(data):
            answer = decode_message(frame.body, JoinDown, "the window")
            if isinstance(answer, Accept):
                return time.perf_counter() - began, asyncio.ensure_future(beats(channel, writer))
        writer.write(channel.data_to_send())


async def read_state(port: int) -> tuple[float, int]:
    """Seconds for a look at the state, and the ranks that are in."""
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /state.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
    answer = await reader.read()
    await closed(writer)
    return time.perf_counter() - began, int(json.loads(answer.partition(b"\r\n\r\n")[2])["joined_ranks"])


async def besiege(port: int, pid: int, connections: int, seed: int) -> str:
    """All strangers, and good hosts and readers between them."""
    slowest_join = slowest_look = 0.0
    members: list[asyncio.Task[None]] = []
    await read_state(port)  # the port listens before the loop behind it has all of its own descriptors
    warm, files = 0, open_files(pid)
    step = max(CROWD, connections // 20)
    for start in range(0, connections, step):
        gate = asyncio.Semaphore(CROWD)

        async def one(number: int, gate: asyncio.Semaphore = gate) -> None:
            async with gate:
                await assault(port, number, seed)

        crowd = [asyncio.ensure_future(one(number)) for number in range(start, min(start + step, connections))]
        await asyncio.sleep(0)
        spent, member = await good_host(port, f"good{start}")
        members.append(member)
        look, joined = await read_state(port)
        assert joined >= len(members), "a member is gone"
        slowest_join, slowest_look = max(slowest_join, spent), max(slowest_look, look)
        await asyncio.gather(*crowd)
        if start == step:
            warm = resident(pid)
    growth = resident(pid) - warm
    assert slowest_join < PATIENCE and slowest_look < PATIENCE, (slowest_join, slowest_look)
    assert growth < GROWTH, f"the window grew by {growth >> 20} MiB"
    await drained(pid, files + len(members))
    for member in members:
        member.cancel()
    await asyncio.gather(*members, return_exceptions=True)  # each closes its connection as it goes
    return (
        f"port: {connections} strangers, {len(members)} hosts in, slowest join {1000 * slowest_join:.0f} ms, slowest "
        f"look {1000 * slowest_look:.0f} ms, the window grew by {growth / (1 << 20):.1f} MiB"
    )


async def drained(pid: int, files: int) -> None:
    """Every stranger's descriptor is closed within the door's patience."""
    until = time.monotonic() + 15
    while (left := open_files(pid)) > files + 4:
        assert time.monotonic() < until, f"{left} descriptors are open, {files} are members' and its own"
        await asyncio.sleep(0.05)


def fuzz_port(connections: int, seed: int) -> str:
    """A line on how it went; the window is a process of its own. Raises AssertionError."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    join = {"discovery": True, "min_rank_start": 1000, "token": SALT.hex()}
    config = {"cluster": {"controller": {"host": "127.0.0.1", "port": port, "path": "/", "join": join}}}
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "err").open("w+b") as said:
        (Path(folder) / "c.json").write_text(json.dumps(config))
        window = subprocess.Popen(
            [Path(sys.executable).parent / "flodl-window", "serve", "--config", "c.json", "--", "true"],
            cwd=folder,
            stderr=said,
        )
        try:
            await_port(port)
            line = asyncio.run(besiege(port, window.pid, connections, seed))
            assert window.poll() is None, "the window ended"
        finally:
            for number in (signal.SIGINT, signal.SIGINT):
                with contextlib.suppress(ProcessLookupError):
                    window.send_signal(number)
            window.wait(20)
        said.seek(0)
        text = said.read().decode("utf-8", "replace")
        assert "Traceback" not in text, text[text.index("Traceback") :][:3000]
        assert SALT.hex() not in text
    return line


def await_port(port: int) -> None:
    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            assert time.monotonic() < until, "the window did not open"
            time.sleep(0.02)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description=__doc__)
    parser.add_argument("--inputs", type=int, default=INPUTS, help="for the codec (default: %(default)s)")
    parser.add_argument("--connections", type=int, default=CONNECTIONS, help="to the port (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of a run to be repeated")
    given = parser.parse_args(argv)
    print(f"seed {given.seed}", flush=True)
    try:
        if given.inputs:
            print(fuzz_codec(given.inputs, given.seed), flush=True)
        if given.connections:
            print(fuzz_port(given.connections, given.seed), flush=True)
    except AssertionError as err:
        print(f"FAILED (--seed {given.seed}): {err}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
