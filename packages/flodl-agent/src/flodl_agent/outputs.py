"""Reads what the processes print, as fast as the link takes it.

Each process has two pipes, read by the event loop. When the link is full, nobody reads: the pipes fill and the process
waits in its own print, which is where the brake belongs. Nothing printed is lost: a process counts as drained when
everything that stood in its pipes at its death has been read. (Waiting for the pipes' end instead would wait for any
grandchild that holds them open.)
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass, field

from flodl_agent.logs import LineSplitter, Tail

_READ = 64 * 1024  # a pipe's whole buffer

Show = Callable[[str, str, list[str]], None]  # name, stream ("out" or "err"), lines


@dataclass
class _Stream:
    owner: _Output
    stream: str
    number: int
    lines: LineSplitter = field(default_factory=LineSplitter)
    due: int | None = None  # bytes still to be read before the dead owner counts as drained; None while it lives


@dataclass
class _Output:
    name: str
    tail: Tail = field(default_factory=Tail)
    streams: list[_Stream] = field(default_factory=list)  # open ones
    drained: asyncio.Event = field(default_factory=asyncio.Event)


class Outputs:
    """`show` gets the lines of every process in the order they were read."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._loop = asyncio.get_running_loop()
        self._outputs: dict[str, _Output] = {}
        self._room = True

    def open(self, name: str) -> tuple[int, int]:
        """Pipes for the process `name`; the writing ends of its stdout and stderr, for the keeper (the caller closes
        them).
        """
        output = self._outputs[name] = _Output(name)
        ends = []
        for stream in ("out", "err"):
            number, end = os.pipe()
            os.set_blocking(number, False)
            output.streams.append(_Stream(output, stream, number))
            ends.append(end)
        self._listen(output)
        return ends[0], ends[1]

    def set_room(self, room: bool) -> None:
        """Whether the link takes more."""
        self._room = room
        for output in self._outputs.values():
            self._listen(output)

    async def drain(self, name: str) -> list[str]:
        """`name` has ended: wait until all it printed has been shown; its last lines."""
        output = self._outputs[name]
        for stream in list(output.streams):
            stream.due = struct.unpack("i", fcntl.ioctl(stream.number, termios.FIONREAD, b"\0" * 4))[0]
        self._check(output)
        await output.drained.wait()
        for (
            stream
        ) in output.streams:  # held open by a grandchild: what the process left unfinished is a line all the same
            self._take(stream, stream.lines.finish())
        return output.tail.lines()

    async def drain_all(self) -> None:
        """Every process has ended: read what is left and close."""
        for name in list(self._outputs):
            await self.drain(name)
        for output in self._outputs.values():
            for stream in list(output.streams):
                self._close(stream)

    def _listen(self, output: _Output) -> None:
        for stream in output.streams:
            if self._room:
                self._loop.add_reader(stream.number, self._read, stream)
            else:
                self._loop.remove_reader(stream.number)

    def _read(self, stream: _Stream) -> None:
        try:
            data = os.read(stream.number, _READ)
        except BlockingIOError:
            return
        if not data:
            self._take(stream, stream.lines.finish())
            self._close(stream)
            return
        if stream.due is not None:
            stream.due -= len(data)
        self._take(stream, stream.lines.feed(data))
        self._check(stream.owner)

    def _take(self, stream: _Stream, lines: list[str]) -> None:
        if lines:
            stream.owner.tail.add(lines)
            self._show(stream.owner.name, stream.stream, lines)

    def _close(self, stream: _Stream) -> None:
        self._loop.remove_reader(stream.number)
        os.close(stream.number)
        stream.owner.streams.remove(stream)
        self._check(stream.owner)

    def _check(self, output: _Output) -> None:
        if all(stream.due is not None and stream.due <= 0 for stream in output.streams):
            output.drained.set()
