"""The hub's part of mode torch: sealed store channels, carried to a TCPStore that listens on loopback only.

Ranks reach it through their agent's listener and the controller's one port, so no stranger ever talks to the store,
which has no authentication of its own. The store starts with the first channel that has proved its key; torch is
loaded in its process, not here. No torch in this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import socket
import threading
from typing import Any

from flodl_planes.coordinator.transport_events import Met, Taken
from flodl_planes.hub.store_child import StoreChild
from flodl_planes.hub.strangers import Strangers, address_of
from flodl_wire import deadlines, preface
from flodl_wire.channel import Responder
from flodl_wire.faults import Broken, Fault, Transient
from flodl_wire.frames import STORE

PIECE = 256 * 1024  # bytes of one store frame; the wire allows 1 MiB


class Store:
    """One run's rendezvous. `salt`: the run's; None: channels prove nothing.

    Puts on `events` one `Taken` for each adopted connection, `Met` when the first has reached the store, and a Fault
    when the store itself cannot serve, or dies.
    """

    def __init__(self, salt: bytes | None, events: queue.SimpleQueue[Any]) -> None:
        self._salt = salt
        self._events = events
        self._child = StoreChild(events.put)
        self._port: asyncio.Task[int] | None = None
        self._carriers: set[asyncio.Task[None]] = set()
        self._strangers: Strangers[asyncio.Task[None]] = Strangers()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="store", daemon=True)
        self._thread.start()

    def adopt(self, sock: socket.socket, head: bytes, number: int) -> None:
        """A store connection that the door passed on, with the bytes it had read. Does not block."""
        self._loop.call_soon_threadsafe(self._begin, sock, head, number)

    def close(self) -> None:
        """End every connection and the store. Once."""
        self._loop.call_soon_threadsafe(self._stop)
        self._child.close()
        self._thread.join(timeout=deadlines.deadline(deadlines.KILL_GRACE))
        if not self._thread.is_alive():
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    def _begin(self, sock: socket.socket, head: bytes, number: int) -> None:
        """It is in our hands at once: one that dawdles here must keep nobody waiting at the door."""
        self._events.put(Taken(number))
        task = self._loop.create_task(self._carry(sock, head))
        self._carriers.add(task)
        task.add_done_callback(self._forget)
        one_too_many = self._strangers.enter(task, address_of(sock))
        if one_too_many:
            one_too_many.cancel()

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._carriers.discard(task)
        self._strangers.leave(task)

    def _stop(self) -> None:
        tasks: list[asyncio.Task[Any]] = [*self._carriers, *([self._port] if self._port else [])]
        for task in tasks:
            task.cancel()
        gathered = asyncio.gather(*tasks, return_exceptions=True)
        gathered.add_done_callback(lambda _: self._loop.call_soon(self._loop.stop))  # behind what the ends left to do

    async def _carry(self, sock: socket.socket, head: bytes) -> None:
        """One connection, from its handshake to its end. An end of either side's that is no clean one is a reset to the
        other, as of a store that died.
        """
        with contextlib.ExitStack() as ends, contextlib.suppress(OSError, Fault, asyncio.TimeoutError):
            reader, near = await _streams(sock)
            ends.callback(near.close)
            channel = Responder(lambda _: self._salt, kinds=(preface.STORE,))
            shown = _proven(reader, near, channel, head)
            first = await asyncio.wait_for(shown, deadlines.deadline(deadlines.PREFACE))
            self._strangers.leave(asyncio.current_task())  # type: ignore[arg-type]  # we are one
            ends.callback(near.transport.abort)
            store_reader, far = await asyncio.open_connection("127.0.0.1", await self._store_port())
            ends.callback(far.transport.abort)
            await asyncio.gather(_up(first, reader, channel, far), _down(store_reader, near, channel))
            ends.pop_all()
            near.close()
            far.close()

    async def _store_port(self) -> int:
        if self._port is None:
            self._port = self._loop.create_task(self._start())
        return await asyncio.shield(self._port)

    async def _start(self) -> int:
        """A store that cannot serve is the run's end: the fault goes to the hub."""
        try:
            port = await self._loop.run_in_executor(None, self._child.start)
        except Broken as fault:
            self._events.put(fault)
            raise
        self._events.put(Met())
        return port


async def _streams(sock: socket.socket) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    try:
        sock.setblocking(False)
        return await asyncio.open_connection(sock=sock)
    except BaseException:
        sock.close()
        raise


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


async def _up(first: bytes, reader: asyncio.StreamReader, channel: Responder, far: asyncio.StreamWriter) -> None:
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
