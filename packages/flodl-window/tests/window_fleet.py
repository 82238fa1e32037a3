"""Agents that speak the wire.

In a test's own loop: `dial` and `join`. As a process (``python window_fleet.py``): a fan-out of such agents,
which takes the spec on stdin and behaves as FAKE_FLEET says.

FAKE_FLEET is JSON: {"<host>": "<deed>"}; every host not named does "train". Deeds:

train     start, wait until state.json says training, report the ranks done and leave
exit:N    the last rank exits N after a line on stderr
die       the last rank is killed by signal 9
cut       close the link without a goodbye
hang      start the ranks and report nothing more until told to end
mute      never dial
gone:N    end before dialling, exit N
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from typing import Any

import msgspec

from flodl_wire import devices, frames, preface
from flodl_wire.channel import Initiator, parse_salt
from flodl_wire.join_messages import (
    Abort,
    Accept,
    Beat,
    Bye,
    DeviceOffer,
    Hello,
    JoinDown,
    Log,
    RankExited,
    Reject,
    Step,
    WorldFormed,
)
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.specs import AgentSpec, FanoutEvent, FanoutHost, FanoutSpec


class Peer:
    """One dialled channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: Initiator) -> None:
        self.reader, self.writer, self.channel = reader, writer, channel
        self._frames: list[frames.Frame] = []

    def send(self, message: msgspec.Struct) -> None:
        self.channel.send(frames.MESSAGE, encode_message(message))
        self.flush()

    def flush(self) -> None:
        self.writer.write(self.channel.data_to_send())

    async def receive(self) -> Any:
        """The next message that is no beat; None at the end of the link. A refused handshake raises its fault."""
        while True:
            while self._frames:
                message = decode_message(self._frames.pop(0).body, JoinDown, "the window")
                if not isinstance(message, Beat):
                    return message
            try:
                data = await self.reader.read(65536)
            except ConnectionError:
                data = b""
            if not data:
                self.channel.receive_eof()
                return None
            self._frames += self.channel.receive_data(data)
            self.flush()

    async def until(self, kind: type) -> Any:
        """The next message of `kind`."""
        while True:
            message = await self.receive()
            assert message is not None, f"the link ended before a {kind.__name__}"
            if isinstance(message, kind):
                return message

    def close(self) -> None:
        self.writer.close()


async def dial(port: int, salt: bytes | None, kind: int = preface.JOIN, host: str = "127.0.0.1") -> Peer:
    reader, writer = await asyncio.open_connection(host, port)
    peer = Peer(reader, writer, Initiator(kind, salt))
    peer.flush()
    return peer


def a_hello(host: str, count: int = 1) -> Hello:
    return Hello(host, os.urandom(4).hex(), [DeviceOffer("cpu", at, "cpu") for at in range(count)])


async def join(port: int, salt: bytes | None, hello: Hello) -> tuple[Peer, Accept | Reject]:
    """Dial and say hello; the peer and the answer."""
    peer = await dial(port, salt)
    peer.send(hello)
    answer = await peer.receive()
    assert isinstance(answer, (Accept, Reject))
    return peer, answer


# as a process


def tell(event: FanoutEvent) -> None:
    print(msgspec.json.encode(event).decode(), flush=True)


async def agent(spec: AgentSpec, deed: str) -> int:
    """One agent's life; its exit code."""
    if deed == "mute":
        await asyncio.Event().wait()
    if deed.startswith("gone"):
        return int(deed.partition(":")[2])
    assert spec.local_devices is not None
    count = devices.count(spec.local_devices) or 1
    salt = parse_salt(spec.salt_hex, "salt") if spec.salt_hex else None
    peer, answer = await join(spec.controller_port, salt, a_hello(spec.host, count))
    if isinstance(answer, Reject):
        return 1
    beating = asyncio.ensure_future(beat(peer))
    try:
        formed = await peer.until(WorldFormed)
        return await take_part(peer, formed, deed)
    except AssertionError:
        return 1
    finally:
        beating.cancel()
        peer.close()


async def pause(seconds: float) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


async def beat(peer: Peer) -> None:
    while True:
        await pause(0.05)
        with contextlib.suppress(Exception):
            peer.send(Beat())


async def take_part(peer: Peer, formed: WorldFormed, deed: str) -> int:
    ranks = formed.envelope.worker.ranks
    for rank in ranks:
        peer.send(Step(f"rank {rank} started", rank))
        peer.send(Log([f"I am rank {rank} of {formed.envelope.world_size} \N{SNOWMAN}"], rank))
    last = ranks[-1]
    if deed.startswith("exit"):
        peer.send(Log(["ValueError: no"], last, stream="err"))
        peer.send(RankExited(last, int(deed.partition(":")[2]), tail=["ValueError: no"]))
    elif deed == "die":
        peer.send(RankExited(last, None, 9))
    elif deed == "cut":
        await peer.writer.drain()
        return -9
    elif deed == "train":
        while await phase(formed.envelope.controller.port) != "training":
            await pause(0.02)
        for rank in ranks:
            peer.send(RankExited(rank, 0))
        peer.send(Bye())
        await peer.receive()
        return 0
    await peer.until(Abort)
    peer.send(Log(["the hub is gone"], source="relay", stream="err"))
    for rank in ranks:
        if not (rank == last and deed != "hang"):
            peer.send(RankExited(rank, None, 15, ordered=True))
    peer.send(Bye("aborted"))
    await peer.receive()
    return 1


async def phase(port: int) -> str:
    """What state.json says now."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /state.json HTTP/1.1\r\nHost: x\r\n\r\n")
    answer = await reader.read()
    writer.close()
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["phase"])


async def run_agent(host: FanoutHost, deed: str) -> None:
    tell(FanoutEvent("started", host.agent.host, command=f"fake agent for {host.agent.host}"))
    try:
        code = await agent(host.agent, deed)
    except Exception as err:
        tell(FanoutEvent("line", host.agent.host, text=repr(err)))
        code = 1
    text = "Permission denied (publickey)." if deed.startswith("gone") else ""
    tell(FanoutEvent("exited", host.agent.host, code, text))


async def fanout() -> None:
    """All of them, until they end or stdin does."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    spec = msgspec.json.decode(await reader.readline(), type=FanoutSpec)
    deeds = json.loads(os.environ.get("FAKE_FLEET", "{}"))
    agents = [asyncio.ensure_future(run_agent(host, deeds.get(host.agent.host, "train"))) for host in spec.hosts]
    stdin_end = asyncio.ensure_future(reader.read())
    await asyncio.wait([stdin_end, asyncio.ensure_future(asyncio.wait(agents))], return_when="FIRST_COMPLETED")
    for task in agents:
        task.cancel()


if __name__ == "__main__":
    asyncio.run(fanout())
