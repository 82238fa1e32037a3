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
from pathlib import Path

from flodl_wire import preface
from flodl_wire.channel import Initiator
from flodl_wire.faults import Fault
from flodl_wire.frames import STORE

_PIECE = 256 * 1024  # bytes of one store frame; the wire allows 1 MiB


class StoreListener:
    """One host's listener. `port` is what the ranks dial, once `open`."""

    def __init__(self, controller: tuple[str, int], salt: bytes | None) -> None:
        self._controller = controller
        self._salt = salt
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
            far_reader, far_writer = await asyncio.open_connection(*self._controller)
            channel = Initiator(preface.STORE, self._salt)
            far_writer.write(channel.data_to_send())
            ready = asyncio.Event()
            up, down = _up(reader, channel, ready, far_writer), _down(far_reader, channel, ready, far_writer, writer)
            await asyncio.gather(up, down)
        except (OSError, Fault, RuntimeError):  # the last: an end that asyncio has closed already
            writer.transport.abort()
        finally:
            writer.close()
            if far_writer:
                far_writer.close()


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


async def _up(
    reader: asyncio.StreamReader, channel: Initiator, ready: asyncio.Event, far_writer: asyncio.StreamWriter
) -> None:
    """The rank's bytes to the controller, once the handshake is done."""
    await ready.wait()
    while True:
        data = await reader.read(_PIECE)
        channel.send(STORE, data)
        far_writer.write(channel.data_to_send())
        await far_writer.drain()
        if not data:
            return


async def _down(
    far_reader: asyncio.StreamReader,
    channel: Initiator,
    ready: asyncio.Event,
    far_writer: asyncio.StreamWriter,
    writer: asyncio.StreamWriter,
) -> None:
    """The handshake's answer, then the controller's bytes to the rank."""
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
        if channel.established and not ready.is_set():
            far_writer.write(channel.data_to_send())
            ready.set()
        await writer.drain()
