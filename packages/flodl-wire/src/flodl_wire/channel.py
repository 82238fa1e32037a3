"""A sealed channel without its socket: preface, Noise handshake, records, frames (docs/protocol.md, W-1 to W-16).

`Initiator` dials, `Responder` accepts; both are fed bytes and asked for bytes, and hold all state that a shell needs.
An asyncio shell, whole:

    def connection_made(self, transport):
        self.transport = transport
        transport.write(channel.data_to_send())            # the dialler's preface and message 1; b"" for the acceptor
    def data_received(self, data):
        try:
            frames = channel.receive_data(data)
        finally:
            self.transport.write(channel.data_to_send())   # message 2, a refusal, or what send() queued meanwhile
        …                                                  # a Fault: log it and close
    def eof_received(self):
        channel.receive_eof()                              # raises when the end is no clean one

A blocking shell does the same with sendall and recv until `established`; then one thread may send (``for records in
channel.sealed(kind, *buffers): sock.sendall(records)``) while another receives (``frames =
channel.buffer_updated(sock.recv_into(channel.get_buffer()))``): the two directions share no state. Several senders
need a lock of the shell's own around a whole frame.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Collection, Iterator
from functools import lru_cache
from pathlib import Path

from flodl_wire import frames, noise, preface
from flodl_wire.faults import Broken, Fault, Refused, Transient
from flodl_wire.frames import Buffer, ChunkHead, Frame, FrameDecoder, Place
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.records import BATCH, RECORD, RECORD_PLAINTEXT, Opener, Sealer

SALT = 16  # bytes of a salt or token

_FIRST_BUFFER = 512  # bytes held for a connection that has said nothing yet


def parse_salt(text: str, name: str) -> bytes:
    """The 16 bytes of a salt or token written as 32 hex digits; `name` says where it stood. Raises Refused (without
    the value).
    """
    try:
        salt = bytes.fromhex(text)
    except ValueError:
        salt = b""
    if len(salt) != SALT or len(text) != 2 * SALT:
        raise Refused("bad-token", f"cannot use {name}", "it must be 32 hex digits", "copy it whole, without spaces")
    return salt


@lru_cache(maxsize=1)
def hardware_cipher() -> str:
    """AES-GCM unless this processor says that it has no AES of its own: ChaCha20-Poly1305 is far faster there."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return noise.AES
    flags = [line for line in text.splitlines() if line.lower().startswith(("flags", "features"))]
    return noise.CHACHA if flags and not any("aes" in line.split() for line in flags) else noise.AES


class Channel(abc.ABC):
    """What both sides share. Use `Initiator` or `Responder`."""

    kind: int | None = None
    established = False
    proven = False
    """True once a record of the other side has opened: only then did it show its key (a first handshake message can be
    a replay). Deadlines for strangers run until then.
    """

    def __init__(self, place: Place | None, max_message: int) -> None:
        self.decoder = FrameDecoder((), place, max_message)
        self.sealer: Sealer
        self.opener: Opener
        self._batch = BATCH
        self.handshake_hash = b""
        self._out = b""
        self._queue: list[Buffer] = []
        self._fault: Fault | None = None
        self._handshake: noise.Handshake | None = None
        self._view = memoryview(bytearray(_FIRST_BUFFER))  # received and not yet opened: [_start:_end]
        self._start = self._end = 0
        self._wanted = 2  # bytes from _start on that the next record takes, as far as is known

    # sending

    def send(self, kind: int, *buffers: Buffer) -> None:
        """Queue one frame; `data_to_send` seals it (once established). The buffers must stand still until then."""
        self._queue.append(frames.frame_head(kind, frames.size_of(buffers)))
        self._queue += buffers

    def carry_bulk(self, batch: int) -> None:
        """Seal and read up to `batch` bytes at once instead of BATCH; when established, before the first frame."""
        self._batch = self.sealer.batch = batch

    def data_to_send(self) -> bytes:
        """All that is to be written now, in one piece. To be written after a Fault too: it may be the refusal."""
        out = bytearray(self._out)
        self._out = b""
        if self.established and self._queue:
            queue, self._queue = self._queue, []
            for records in self.sealer.records(*queue):
                out += records
        return bytes(out)

    def sealed(self, kind: int, *buffers: Buffer) -> Iterator[memoryview]:
        """One frame, and before it what was queued, as records of at most BATCH bytes a step, without copying large
        buffers.

        Write each view whole before the next step. Only when established.
        """
        self.send(kind, *buffers)
        queue, self._queue = self._queue, []
        return self.sealer.records(*queue)

    # receiving

    @property
    def max_message(self) -> int:
        """The longest JSON message taken now, in bytes; to be raised when the other side has been admitted."""
        return self.decoder.max_message

    @max_message.setter
    def max_message(self, limit: int) -> None:
        self.decoder.max_message = limit

    def receive_data(self, data: Buffer) -> list[Frame]:
        """The frames that `data` completes. Raises Refused or Broken, and from then on always the same; the connection
        must close.
        """
        done: list[Frame] = []
        view = memoryview(data)
        while view:
            room = self.get_buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            done += self.buffer_updated(count)
            view = view[count:]
        return done

    def get_buffer(self) -> memoryview:
        """Where to receive next (`recv_into`); never empty. Valid until the next call here."""
        if self._start == self._end:
            self._start = self._end = 0
        elif len(self._view) - self._end < len(self._view) // 4 or self._start + self._wanted > len(self._view):
            self._resize(max(len(self._view), self._wanted))
        return self._view[self._end :]

    def buffer_updated(self, count: int) -> list[Frame]:
        """`count` bytes have come into `get_buffer()`: the frames they complete. Raises like `receive_data`."""
        if self._fault:
            raise self._fault
        filled = count == len(self._view) - self._end
        self._end += count
        done: list[Frame] = []
        try:
            if not self.established:
                self._advance_handshake()
            if self.established:
                self._open_records(done)
        except Fault as fault:
            self._fault = fault
            raise
        if filled and self.proven and len(self._view) < self._batch:
            self._resize(min(4 * len(self._view), self._batch))
        return done

    def receive_eof(self) -> None:
        """The other side closed (or reset) the connection. Returns when that is clean, else raises what it means."""
        if self._fault:
            raise self._fault
        if not self.established:
            self._fault = self._closed_early()
            raise self._fault
        if self._start != self._end or not self.decoder.at_boundary:
            self._fault = Broken(
                "truncated", "cannot read from the channel", "the connection ended inside a record or frame"
            )
            raise self._fault

    def _resize(self, size: int) -> None:
        """What is unread moves to the start of the buffer, or of a new one when it is to be larger."""
        unread = self._view[self._start : self._end]
        view = self._view if size == len(self._view) else memoryview(bytearray(size))
        view[: len(unread)] = unread
        self._view, self._start, self._end = view, 0, len(unread)

    def _open_records(self, done: list[Frame]) -> None:
        view, decoder = self._view, self.decoder
        while True:
            unread = self._end - self._start
            self._wanted = 2
            if unread < 2:
                return
            length = view[self._start] << 8 | view[self._start + 1]
            if length <= noise.TAG:
                raise Broken(
                    "bad-record", "cannot read from the channel", f"a record of {length} bytes carries nothing"
                )
            self._wanted = 2 + length
            if unread < self._wanted:
                return
            ciphertext = view[self._start + 2 : self._start + self._wanted]
            size = length - noise.TAG
            room = decoder.space()
            if len(room) >= size:  # tensor bytes: decrypted to where they belong
                self.opener.open_record(ciphertext, room[:size])
                frame = decoder.advance(size)
                if frame:
                    done.append(frame)
            else:
                plaintext = memoryview(bytearray(size))
                self.opener.open_record(ciphertext, plaintext)
                done += decoder.feed(plaintext)
            self.proven = True
            self._start += self._wanted

    def _take(self, count: int) -> bytes:
        taken = bytes(self._view[self._start : self._start + count])
        self._start += count
        return taken

    def _establish(self, kind: int) -> None:
        assert self._handshake
        sending, receiving = self._handshake.split()
        self.handshake_hash = self._handshake.hash
        self._handshake = None
        self.sealer, self.opener = Sealer(sending), Opener(receiving)
        self.decoder.kinds = frames.KINDS_OF[kind]
        self.established = True

    @abc.abstractmethod
    def _advance_handshake(self) -> None:
        """Take from what has arrived whatever the handshake can use; `_establish` when it is through."""

    @abc.abstractmethod
    def _closed_early(self) -> Fault:
        """What to say when the other side closed before the handshake was through."""


class Initiator(Channel):
    """The side that dials. `salt`: 16 bytes, or None at an open door. `cipher`: noise.AES or noise.CHACHA, default
    what suits this box.

    Frames may be queued with `send` at once; they go out when the handshake is done.
    """

    def __init__(
        self,
        kind: int,
        salt: bytes | None,
        cipher: str | None = None,
        *,
        place: Place | None = None,
        ephemeral: bytes | None = None,
    ) -> None:
        super().__init__(place, frames.LIMITS[frames.MESSAGE])
        self.kind = kind
        cipher = cipher or hardware_cipher()
        head = preface.Preface(kind, keyed=salt is not None, chacha=cipher == noise.CHACHA).encode()
        self._handshake = noise.Handshake(
            initiator=True, prologue=head, cipher=cipher, psk=noise.psk_of(salt), ephemeral=ephemeral
        )
        self._out = head + self._handshake.write()

    def _advance_handshake(self) -> None:
        assert self._handshake and self.kind is not None
        if self._end - self._start < noise.MESSAGE:
            return
        answer = self._take(noise.MESSAGE)
        what = f"cannot open the {preface.KINDS[self.kind]} channel"
        try:
            self._handshake.read(answer)
        except noise.InvalidTag:  # a flodl of another salt refuses before it answers, so this is no flodl
            raise preface.stranger(what, answer) from None
        self._establish(self.kind)

    def _closed_early(self) -> Fault:
        assert self.kind is not None
        name = preface.KINDS[self.kind]
        unread = self._view[self._start : self._end]
        if preface.is_refusal(unread):
            return preface.refusal_fault(unread, name)
        return Transient(
            "closed-early",
            f"cannot open the {name} channel",
            "the other side closed the connection during the handshake",
            "check that address and port are those of a flodl controller, and its log for the reason",
        )


class Responder(Channel):
    """The side that accepts.

    `salt_for(keyed)` gives the salt for a dialler that proves one (keyed) or not, None for the zero key: ``lambda
    keyed: salt`` lets in only who holds the salt, ``lambda keyed: salt if keyed else None`` keeps the door open.
    `kinds`: the channels served here. `max_message`: the longest message taken at first; by default all that the
    protocol allows from a dialler that proves the salt, little from one that does not, until its owner trusts it and
    raises `Channel.max_message`.
    """

    def __init__(
        self,
        salt_for: Callable[[bool], bytes | None],
        *,
        kinds: Collection[int] = tuple(preface.KINDS),
        place: Place | None = None,
        max_message: int | None = None,
        ephemeral: bytes | None = None,
    ) -> None:
        super().__init__(place, frames.STRANGER_LIMIT)
        self._max_message = max_message
        self._salt_for = salt_for
        self._kinds = kinds
        self._ephemeral = ephemeral

    def _advance_handshake(self) -> None:
        if self.kind is None and not self._read_preface():
            return
        assert self._handshake and self.kind is not None
        unread = self._end - self._start
        if unread < noise.MESSAGE:
            return
        if unread > noise.MESSAGE:
            raise Broken("bad-handshake", "cannot open the channel", "the dialler went on before it was answered")
        try:
            self._handshake.read(self._take(noise.MESSAGE))
        except noise.InvalidTag:
            self._out = preface.encode_refusal(preface.REASON_KEY)
            raise preface.wrong_key(f"cannot open the {preface.KINDS[self.kind]} channel") from None
        self._out = self._handshake.write()
        self._establish(self.kind)

    def _read_preface(self) -> bool:
        unread = self._view[self._start : self._end]
        if len(unread) < preface.LENGTH and preface.is_start(unread):
            return False
        try:
            head = preface.parse(unread)
        except Refused as refused:
            if refused.code == "other-version":
                self._out = preface.encode_refusal(preface.REASON_VERSION)
            elif refused.code == "other-kind":
                self._out = preface.encode_refusal(preface.REASON_KIND)
            raise
        what = f"cannot open the {preface.KINDS[head.kind]} channel"
        if head.kind not in self._kinds:
            self._out = preface.encode_refusal(preface.REASON_KIND)
            raise Refused("other-kind", what, "it is not served here")
        salt = self._salt_for(head.keyed)
        if head.keyed and salt is None:
            self._out = preface.encode_refusal(preface.REASON_KEY)
            raise preface.wrong_key(what)
        if salt is not None and not head.keyed:
            self._out = preface.encode_refusal(preface.REASON_UNKEYED)
            raise Refused("no-key", what, "the other side proves no salt or token, and this door wants one")
        self._handshake = noise.Handshake(
            initiator=False,
            prologue=self._take(preface.LENGTH),
            cipher=noise.CHACHA if head.chacha else noise.AES,
            psk=noise.psk_of(salt),
            ephemeral=self._ephemeral,
        )
        self.kind = head.kind
        if self._max_message is not None:
            self.max_message = self._max_message
        elif head.keyed:  # whatever opens came from somebody who holds the salt
            self.max_message = frames.LIMITS[frames.MESSAGE]
        return True

    def _closed_early(self) -> Fault:
        return Transient(
            "closed-early", "cannot open a channel", "the dialler closed the connection during the handshake"
        )


__all__ = [
    "BATCH",
    "RECORD",
    "RECORD_PLAINTEXT",
    "Channel",
    "ChunkHead",
    "Frame",
    "Initiator",
    "Opener",
    "Responder",
    "Sealer",
    "decode_message",
    "encode_message",
    "hardware_cipher",
    "parse_salt",
]
