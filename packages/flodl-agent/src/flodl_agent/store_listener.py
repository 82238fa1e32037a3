"""Mode torch's rendezvous: a listener on loopback that carries each connection, sealed, to the one port of the
controller.

A rank finds its TCPStore at MASTER_ADDR=127.0.0.1, MASTER_PORT=ours. Each of its connections becomes a channel of kind
*store*: bytes travel in store frames, an empty frame says that this direction has ended. Neither side is read faster
than the other takes it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from flodl_agent.road import keep_alive
from flodl_wire import deadlines, noise, preface
from flodl_wire.channel import Initiator
from flodl_wire.faults import Fault, Transient
from flodl_wire.frames import STORE

_PIECE = 256 * 1024  # bytes of one store frame; the wire allows 1 MiB
_RETRY = 0.2  # seconds between two tries to dial


class StoreListener:
    """One host's listener. `port` is what the ranks dial, once `open`. `complain` gets a line where the controller
    cannot be reached, each once: torch itself only tells of a reset.
    """

    def __init__(self, controller: tuple[str, int], salt: bytes | None, complain: Callable[[str], None]) -> None:
        self._controller = controller
        self._salt = salt
        self._complain = complain
        self._complaints: set[str] = set()
        self._carriers: set[asyncio.Task[None]] = set()
        self._serving: asyncio.Task[None] | None = None
        self.port = 0

    def open(self) -> None:
        """Listen. Raises OSError."""
        sock = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = sock.getsockname()[1]
        self._serving = asyncio.ensure_future(self._serve(sock))

    def close(self) -> None:
        for task in (self._serving, *self._carriers):
            if task:
                task.cancel()

    async def _serve(self, sock: socket.socket) -> None:
        async with await asyncio.start_server(self._accept, sock=sock) as server:
            await server.serve_forever()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        carrier = asyncio.ensure_future(self._carry(reader, writer))
        self._carriers.add(carrier)
        carrier.add_done_callback(self._carriers.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection. Where the controller cannot be reached the rank sees a reset, as it would of a dead store."""
        far_writer: asyncio.StreamWriter | None = None
        try:
            if owner(writer.get_extra_info("peername"), self.port) not in (None, 0, os.getuid()):
                raise ConnectionRefusedError("another user's")
            first = await reader.read(_PIECE)  # a store's client speaks first: who only looks costs nobody anything
            if not first:
                return
            try:
                channel, far_reader, far_writer = await self._dial()
            except (OSError, Fault) as err:
                self._tell(f"a rank's connection to its store did not get through to the controller: {err}")
                raise
            up, down = _up(first, reader, channel, far_writer), _down(far_reader, channel, writer)
            await asyncio.gather(up, down)
        except (OSError, Fault, RuntimeError):  # the last: an end that asyncio has closed already
            writer.transport.abort()
        finally:
            writer.close()
            if far_writer:
                far_writer.close()

    def _tell(self, line: str) -> None:
        if line not in self._complaints:
            self._complaints.add(line)
            self._complain(line)

    async def _dial(self) -> tuple[Initiator, asyncio.StreamReader, asyncio.StreamWriter]:
        """A channel whose handshake is done. Tries again while the controller is too busy (many ranks dial at once) or
        out of reach; no byte of the rank's has gone out before. Raises Fault, OSError.
        """
        give_up = asyncio.get_running_loop().time() + deadlines.deadline(deadlines.CONNECT_BUDGET)
        while True:
            try:
                return await asyncio.wait_for(self._shake_hands(), deadlines.deadline(deadlines.PREFACE))
            except (OSError, Transient, asyncio.TimeoutError) as err:
                if asyncio.get_running_loop().time() + _RETRY > give_up:
                    raise ConnectionResetError(str(err)) from None
                await asyncio.sleep(_RETRY)

    async def _shake_hands(self) -> tuple[Initiator, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(*self._controller)
        keep_alive(writer.get_extra_info("socket"))
        channel = Initiator(preface.STORE, self._salt)
        try:
            writer.write(channel.data_to_send())
            channel.receive_data(await reader.readexactly(noise.MESSAGE))
        except asyncio.IncompleteReadError as err:
            writer.close()
            channel.receive_data(err.partial)
            channel.receive_eof()  # raises what it means: a refusal, mostly
            raise AssertionError("an unfinished handshake passed for a clean end") from None
        except BaseException:
            writer.close()
            raise
        return channel, reader, writer


def owner(address: tuple[str, int], port: int) -> int | None:
    """The user id behind the loopback connection from `address` to `port`, None when the kernel's table does not tell
    (any more).
    """
    near = f"{int.from_bytes(socket.inet_aton(address[0]), sys.byteorder):08X}:{address[1]:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1] == near and fields[2].endswith(f":{port:04X}"):
            return int(fields[7])
    return None


async def _up(first: bytes, reader: asyncio.StreamReader, channel: Initiator, far_writer: asyncio.StreamWriter) -> None:
    """The rank's bytes to the controller."""
    data = first
    while True:
        channel.send(STORE, data)
        far_writer.write(channel.data_to_send())
        await far_writer.drain()
        if not data:
            return
        data = await reader.read(_PIECE)


async def _down(far_reader: asyncio.StreamReader, channel: Initiator, writer: asyncio.StreamWriter) -> None:
    """The controller's bytes to the rank."""
    while True:
        data = await far_reader.read(_PIECE)
        if not data:
            channel.receive_eof()
            raise ConnectionResetError("the controller closed a store channel")
        for frame in channel.receive_data(data):
            if frame.kind == STORE and not frame.body:
                writer.write_eof()
                return
            if frame.kind == STORE:
                writer.write(frame.body)
        await writer.drain()
