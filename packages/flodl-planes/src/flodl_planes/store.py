"""The hub's part of mode torch: sealed store channels, carried to a TCPStore that listens on loopback only.

Ranks reach it through their agent's listener and the controller's one port, so no stranger ever talks to the store,
which has no authentication of its own. The store starts with the first channel that has proved its key; torch is
loaded in its process, not here. No torch in this module.
"""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import subprocess
import sys
import tempfile
import threading
from typing import Any

from flodl_planes.transport_events import Taken
from flodl_wire import deadlines, preface
from flodl_wire.channel import Responder
from flodl_wire.faults import Broken, Fault, Transient
from flodl_wire.frames import STORE

PIECE = 256 * 1024  # bytes of one store frame; the wire allows 1 MiB


class Store:
    """One run's rendezvous. `salt` None: channels prove nothing (open admission).

    Puts on `events` one `Taken` for each adopted connection, and a Fault when the store itself cannot serve.
    """

    def __init__(self, salt: bytes | None, events: queue.SimpleQueue[Any]) -> None:
        self._salt = salt
        self._events = events
        self._server: subprocess.Popen[bytes] | None = None
        self._port: asyncio.Task[int] | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as we live; a pipe would want emptying
        self._carriers: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)
        self._thread.start()

    def adopt(self, sock: socket.socket, head: bytes, number: int) -> None:
        """A store connection that the door passed on, with the bytes it had read. Does not block."""
        self._loop.call_soon_threadsafe(self._begin, sock, head, number)

    def close(self) -> None:
        """End every connection and the store."""
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(timeout=deadlines.deadline(deadlines.KILL_GRACE))
        if self._server is not None:
            self._server.kill()  # it holds nothing that anybody wants back
            self._server.communicate()
        self._words.close()

    def _begin(self, sock: socket.socket, head: bytes, number: int) -> None:
        task = self._loop.create_task(self._carry(sock, head, number))
        self._carriers.add(task)
        task.add_done_callback(self._carriers.discard)

    def _stop(self) -> None:
        tasks = [*self._carriers, *([self._port] if self._port else [])]
        for task in tasks:
            task.cancel()
        gathered = asyncio.gather(*tasks, return_exceptions=True)
        gathered.add_done_callback(lambda _: self._loop.stop())

    async def _carry(self, sock: socket.socket, head: bytes, number: int) -> None:
        """One connection, from its handshake to its end."""
        told = False
        near: asyncio.StreamWriter | None = None
        far: asyncio.StreamWriter | None = None
        try:
            sock.setblocking(False)
            reader, near = await asyncio.open_connection(sock=sock)
            channel = Responder(lambda _: self._salt, kinds=(preface.STORE,))
            first = await asyncio.wait_for(_proven(reader, near, channel, head), deadlines.deadline(deadlines.PREFACE))
            self._events.put(Taken(number))
            told = True
            store_reader, far = await asyncio.open_connection("127.0.0.1", await self._store_port())
            await asyncio.gather(_up(first, reader, near, channel, far), _down(store_reader, near, channel))
        except (OSError, Fault, asyncio.TimeoutError) as error:
            if not told:
                self._events.put(Taken(number, str(error) or "it did not finish in time"))
            for writer in (near, far):
                if writer is not None:
                    writer.transport.abort()  # the other side sees a reset, as of a store that died
        finally:
            for writer in (near, far):
                if writer is not None:
                    writer.close()
            if near is None:
                sock.close()

    async def _store_port(self) -> int:
        if self._port is None:
            self._port = self._loop.create_task(self._start())
        return await asyncio.shield(self._port)

    async def _start(self) -> int:
        """The store's process and its port. A store that cannot serve is the run's end: the fault goes to the hub."""
        try:
            self._server = subprocess.Popen(
                [sys.executable, "-m", "flodl_planes.store_server"],
                stdin=subprocess.PIPE,  # its end is the store's end, however we die
                stdout=subprocess.PIPE,
                stderr=self._words,
            )
            line = await self._loop.run_in_executor(None, self._first_line, self._server)
            return int(json.loads(line)["port"])
        except (OSError, ValueError, KeyError) as error:
            fault = Broken(
                "no-store",
                "cannot serve the rendezvous of mode torch",
                str(error),
                "the controller's Python needs torch in this mode: pip install 'flodl-planes[torch]' there",
            )
            self._events.put(fault)
            raise fault from None

    def _first_line(self, server: subprocess.Popen[bytes]) -> bytes:
        """Blocks until the store has said its port. Raises OSError with its last words when it ends before."""
        assert server.stdout is not None
        line = server.stdout.readline()
        if not line:
            server.wait()
            self._words.seek(0)
            words = self._words.read().decode(errors="replace").strip().splitlines()
            raise OSError(words[-1] if words else "its process ended at once")
        return line


async def _proven(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, channel: Responder, head: bytes) -> bytes:
    """Handshake, up to the first bytes of a dialler that has shown its key. Raises Fault, OSError."""
    data, arrived = head, bytearray()
    while True:
        try:
            if data:
                for frame in channel.receive_data(data):
                    if frame.kind == STORE:
                        arrived += frame.body
        finally:
            writer.write(channel.data_to_send())
            await writer.drain()
        if channel.proven:
            return bytes(arrived)
        data = await reader.read(4096)
        if not data:
            channel.receive_eof()
            raise Transient("closed-early", "cannot open a store channel", "the other side closed it")


async def _up(
    first: bytes,
    reader: asyncio.StreamReader,
    near: asyncio.StreamWriter,
    channel: Responder,
    far: asyncio.StreamWriter,
) -> None:
    """The rank's bytes to the store; an empty frame says that this direction has ended."""
    far.write(first)
    while True:
        await far.drain()
        data = await reader.read(PIECE)
        if not data:
            channel.receive_eof()
            raise ConnectionResetError("the agent closed a store channel")
        for frame in channel.receive_data(data):
            if frame.kind != STORE:
                continue
            if not frame.body:
                if far.can_write_eof():
                    far.write_eof()
                return
            far.write(frame.body)


async def _down(reader: asyncio.StreamReader, near: asyncio.StreamWriter, channel: Responder) -> None:
    """The store's bytes to the rank."""
    while True:
        data = await reader.read(PIECE)
        channel.send(STORE, data)
        near.write(channel.data_to_send())
        await near.drain()
        if not data:
            return
