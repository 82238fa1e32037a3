"""A sealed channel with its TCP socket: messages and tensor chunks between a relay and the hub on another box.

Two threads, one a direction. The owner's thread sits in `receive`; the other, here, writes what was posted: messages
before the next chunk of a stream, and a beat when nothing else was to be said. Only receiving has a deadline (silence):
sending may have to wait as long as the other side rightly holds back, and a link that is truly dead is ended by the
receiver, which frees the sender too.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import msgspec

from flodl_planes.plane.frame_socket import LinkEnded
from flodl_wire import deadlines, frames, preface
from flodl_wire.channel import Channel, Initiator, Responder
from flodl_wire.faults import Fault, Transient
from flodl_wire.messages import encode_message
from flodl_wire.plane_messages import RelayBeat
from flodl_wire.records import RECORD
from flodl_wire.resending import resend_soon

DIAL_EVERY_S = 0.5
BULK = 18 * RECORD  # a chunk with its head in one write: 6 % less processor time a round than 256 KiB at a time


@dataclass
class Stream:
    """Chunks to be sent in order. `piece(n)` → (offset for the chunk's head, bytes); `ready(n)`: whether it may be sent
    now.
    """

    round: int
    attempt: int
    count: int
    piece: Callable[[int], tuple[int, memoryview]]
    ready: Callable[[int], bool]
    last: msgspec.Struct | None = None  # sent behind the last chunk
    sent: int = field(default=0, init=False)


class SealedSocket:
    """Made by `dial` or `answer`. `on_ended(why)` is called once, from the sending thread, when it could not send."""

    def __init__(self, sock: socket.socket, channel: Channel) -> None:
        self.sock = sock
        self.channel = channel
        self.bytes_sent = 0
        self._messages: deque[bytes] = deque()
        self._stream: Stream | None = None
        self._trickles: deque[Iterator[msgspec.Struct]] = deque()
        self._wake = threading.Condition()
        self._closing = False
        channel.carry_bulk(BULK)
        sock.setblocking(True)
        silence = deadlines.deadline(deadlines.SILENCE)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", int(silence), 0))
        self._silence = silence
        self._sender = threading.Thread(target=self._send_all, name="sender", daemon=True)
        self._sender.start()

    # sending

    def post(self, message: msgspec.Struct) -> None:
        """Send `message` as soon as may be; never blocks, never raises."""
        with self._wake:
            self._messages.append(encode_message(message))
            self._wake.notify()

    def stream(self, stream: Stream | None) -> None:
        """Send these chunks between messages, instead of what was streamed before. None: stop streaming."""
        with self._wake:
            self._stream = stream
            self._wake.notify()

    def finish(self, stream: Stream, last: msgspec.Struct) -> None:
        """Send `last` behind the last chunk of `stream`, unless another has taken its place."""
        with self._wake:
            stream.last = last
            self._wake.notify()

    def trickle(self, messages: Iterator[msgspec.Struct]) -> None:
        """Send these, one at a time and each made when it is about to be sent, while there is nothing else to send."""
        with self._wake:
            self._trickles.append(messages)
            self._wake.notify()

    def nudge(self) -> None:
        """More of the stream may be ready."""
        with self._wake:
            self._wake.notify()

    def close(self, flush_s: float = 0.0) -> None:
        """End the connection, after what was posted has gone out or `flush_s` has passed. May be called twice."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if flush_s and threading.current_thread() is not self._sender:
            self._sender.join(flush_s)
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()

    def _send_all(self) -> None:
        beat = deadlines.beat()
        beat_body = encode_message(RelayBeat())
        next_beat = time.monotonic() + beat
        try:
            while True:
                body, stream = self._next(next_beat)
                if body is not None:
                    self._write(frames.MESSAGE, body)
                elif stream is not None:
                    self._write_piece(stream)
                elif self._closing:
                    self.sock.shutdown(socket.SHUT_WR)
                    return
                now = time.monotonic()
                if now >= next_beat:
                    if body is None and stream is None:
                        self._write(frames.MESSAGE, beat_body)
                    next_beat = now + beat
        except OSError:
            try:
                self.sock.shutdown(socket.SHUT_RDWR)  # the receiving thread sees the end and tells the owner
            except OSError:
                pass

    def _next(self, until: float) -> tuple[bytes | None, Stream | None]:
        """What to send now: a message, else a stream with a ready chunk, else nothing (at `until`, or when closing)."""
        with self._wake:
            while True:
                if self._messages:
                    return self._messages.popleft(), None
                stream = self._stream
                if self._closing or (stream and stream.sent < stream.count and stream.ready(stream.sent)):
                    return None, None if self._closing else stream
                if stream and stream.sent == stream.count and stream.last is not None:
                    self._stream = None
                    return encode_message(stream.last), None
                while self._trickles:
                    message = next(self._trickles[0], None)
                    if message is not None:
                        return encode_message(message), None
                    self._trickles.popleft()
                rest = until - time.monotonic()
                if rest <= 0:
                    return None, None
                self._wake.wait(rest)

    def _write_piece(self, stream: Stream) -> None:
        offset, data = stream.piece(stream.sent)
        self._write(frames.CHUNK, frames.CHUNK_HEAD.pack(stream.round, stream.attempt, offset), data)
        stream.sent += 1

    def _write(self, kind: int, *buffers: frames.Buffer) -> None:
        for records in self.channel.sealed(kind, *buffers):
            self.sock.sendall(records)
            self.bytes_sent += len(records)

    # receiving

    def receive(self) -> list[frames.Frame]:
        """The frames that the next bytes complete (perhaps none). Raises LinkEnded (closed, or silent too long),
        Broken.
        """
        try:
            count = self.sock.recv_into(self.channel.get_buffer())
        except BlockingIOError:
            raise LinkEnded(f"nothing was heard for {self._silence:.0f} s") from None
        except OSError as err:
            raise LinkEnded(err.strerror or str(err)) from None
        if not count:
            try:
                self.channel.receive_eof()
            except Fault as fault:
                raise LinkEnded(fault.why) from None
            raise LinkEnded("the other side closed it", clean=True)
        return self.channel.buffer_updated(count)


def dial(host: str, port: int, salt: bytes | None, place: frames.Place) -> SealedSocket:
    """A relay's connection to the hub, behind the controller's one port. Tries for CONNECT_BUDGET. Raises Transient,
    Refused, Broken.
    """
    end = time.monotonic() + deadlines.deadline(deadlines.CONNECT_BUDGET)
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=max(0.1, end - time.monotonic()))
            break
        except OSError as err:
            if time.monotonic() + DIAL_EVERY_S >= end:
                raise Transient(
                    "no-controller",
                    f"cannot reach the controller at {host}:{port}",
                    err.strerror or str(err),
                    "check that address and the firewall between",
                ) from None
            time.sleep(DIAL_EVERY_S)
    try:
        prepare(sock)
        channel = Initiator(preface.RELAY, salt, place=place)
        sock.settimeout(deadlines.deadline(deadlines.PREFACE))
        while not channel.established:
            sock.sendall(channel.data_to_send())
            data = sock.recv(4096)
            if not data:
                channel.receive_eof()
            channel.receive_data(data)
        return SealedSocket(sock, channel)
    except OSError as err:
        sock.close()
        raise Transient(
            "no-controller", f"cannot open the relay channel to {host}:{port}", err.strerror or str(err)
        ) from None
    except Fault:
        sock.close()
        raise


def answer(
    sock: socket.socket, head: bytes, salt: bytes | None, keyed: bool, place: frames.Place
) -> tuple[SealedSocket, list[frames.Frame]]:
    """The hub's side: handshake, up to the first frames of a dialler that has shown its key; within PREFACE. Raises
    Fault.
    """
    end = time.monotonic() + deadlines.deadline(deadlines.PREFACE)
    channel = Responder(lambda _: salt if keyed else None, kinds=(preface.RELAY,), place=place)
    arrived: list[frames.Frame] = []
    try:
        prepare(sock)
        data = head
        while True:
            try:
                if data:
                    arrived += channel.receive_data(data)
            finally:
                reply = channel.data_to_send()
                if reply:
                    sock.settimeout(max(0.1, end - time.monotonic()))
                    sock.sendall(reply)
            if channel.proven and arrived:
                break
            sock.settimeout(max(0.1, end - time.monotonic()))
            data = sock.recv(4096)
            if not data:
                channel.receive_eof()
                raise LinkEnded("the other side closed it")
            if time.monotonic() > end:
                raise TimeoutError("it did not finish in time")
        channel.max_message = frames.LIMITS[frames.MESSAGE]
        return SealedSocket(sock, channel), arrived
    except OSError as err:
        raise LinkEnded(err.strerror or str(err)) from None


def prepare(sock: socket.socket) -> None:
    """TCP_NODELAY: with Nagle and delayed acknowledgements each small frame costs tens of milliseconds."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        resend_soon(sock)
