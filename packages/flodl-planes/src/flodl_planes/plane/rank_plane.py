"""The rank's end of the CPU plane: messages over the relay's Unix socket, tensors in shared memory.

    live = Segment.create("live", lay_out(tensors).total_bytes)     # then make the module's tensors views of live.array
    plane = RankPlane.connect(socket_path, RankHello(…), live)
    while True:
        message = plane.receive()                                   # Plan, Round, Finish or Dismiss
        …  plane.send(Deposit(…))                                   # from here on `live` stands still
        if isinstance(message, Round): plane.reduce(message)        # until here

No thread of its own: everything happens inside these calls, in the script's thread.
"""

from __future__ import annotations

import os
import select
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from flodl_planes.plane.frame_socket import FrameSocket, LinkEnded
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.layout import Layout
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.share import HostMemory, Share, crossed, finish_line, leaders_line
from flodl_planes.plane.words import Words, control_bytes, wait_until
from flodl_wire import deadlines
from flodl_wire.faults import Broken, Fault, Transient
from flodl_wire.join_messages import RELAY_GONE
from flodl_wire.messages import decode_message
from flodl_wire.plane_messages import (
    Attach,
    Commit,
    Dismiss,
    Finish,
    Plan,
    RankDown,
    RankHello,
    RankUp,
    Restore,
    Round,
    State,
)

T = TypeVar("T")

RETRY_S = 0.02  # between two tries to reach a relay that does not listen yet


class Reduced(NamedTuple):
    """`round`: the one that was applied, which a lost host may have made a later attempt than the one given to
    `reduce`.
    """

    round: Round
    ms: float


class RankPlane:
    """Use `connect`. Everything raises Transient "relay-lost" when the relay is gone: the rank can only end then."""

    def __init__(self, link: FrameSocket, hello: RankHello, live: Segment) -> None:
        self.live = live
        self._link = link
        self._poll = select.poll()
        self._poll.register(link, select.POLLIN)
        self._rank = hello.rank
        self._layout = Layout.of_sections(hello.sections)
        self._inbox: deque[RankDown] = deque()
        self._memory: HostMemory | None = None
        self._restored: Segment | None = None
        self._adder = Adder()
        this = weakref.ref(link.sock)
        os.register_at_fork(after_in_child=lambda: _close_quietly(this()))

    @classmethod
    def connect(cls, socket_path: str, hello: RankHello, live: Segment) -> RankPlane:
        """Say hello to the host's relay, waiting until it listens. `live` must hold the rank's weights already.

        Raises Transient when no relay listens within CONNECT_BUDGET.
        """
        end = time.monotonic() + deadlines.deadline(deadlines.CONNECT_BUDGET)
        while True:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                sock.connect(socket_path)
                break
            except OSError as err:
                sock.close()
                if (
                    not isinstance(err, (FileNotFoundError, ConnectionRefusedError, BlockingIOError))
                    or time.monotonic() > end
                ):
                    raise Transient(
                        "no-relay", f"cannot reach this host's relay at {socket_path}", err.strerror or str(err),
                        "its own log (in runs/) says why it is not there",
                    ) from None  # fmt: skip
                time.sleep(RETRY_S)
        plane = cls(FrameSocket(sock), hello, live)
        if live.nbytes != plane._layout.total_bytes:
            raise ValueError(f"the live segment has {live.nbytes} bytes, the layout {plane._layout.total_bytes}")
        plane._checked(lambda: plane._link.send(hello, [live.fd]))
        return plane

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._link.fileno()

    def send(self, message: RankUp) -> None:
        self._checked(lambda: self._link.send(message))

    def send_state(self, round: int, state: Segment, elapsed_ms: float) -> None:
        """Ship what belongs beside the checkpoint of `round`: a whole safetensors file. `state` is given away."""
        message = State(round, state.nbytes, elapsed_ms)
        self._checked(lambda: self._link.send(message, [state.fd]))
        state.close()

    def restored(self) -> memoryview:
        """Wait for what a checkpoint holds for a rank that begins, after a round marked `state`; a safetensors file."""
        while self._restored is None:
            self._stop_if_dismissed()
            self._read()
        held, self._restored = self._restored, None
        return held.buffer

    def receive(self) -> Plan | Round | Finish | Dismiss:
        """The next message for the trainer; blocks."""
        while True:
            while self._inbox:
                message = self._inbox.popleft()
                if isinstance(message, (Plan, Round, Finish, Dismiss)):
                    return message
            self._read()

    def look(self) -> RankDown | None:
        """The next message of any kind, if one has come; does not wait."""
        if not self._inbox:
            self._look()
        return self._inbox.popleft() if self._inbox else None

    def pick(self, wanted: Callable[[RankDown], bool]) -> RankDown | None:
        """The first message that is `wanted`, if one has come; does not wait, and leaves the others where they are."""
        self._look()
        found = next((message for message in self._inbox if wanted(message)), None)
        if found is not None:
            self._inbox.remove(found)
        return found

    def wait(self, round: Round | None) -> None:
        """Until a message has come, or the average of `round` stands; sooner now and then."""
        if round is None or not round.alone or not self.moves(round):
            self._read()
        else:
            wait_until(lambda: self.stands(round), self._look)

    def stands(self, round: Round) -> bool:
        """Whether the average of a round that is made apart from the ranks is there. One of several hosts stands when
        its `Commit` has come, which only the caller knows.
        """
        if not self.moves(round):
            return True
        memory = self._attached()
        return round.alone and crossed(memory, finish_line(memory, round))

    def keep(self, round: Round, average: NDArray[np.uint8]) -> None:
        """Leave the average of a `direct` round, in the live layout, with the relay for the hub; the leader does so."""
        memory = self._attached()
        np.copyto(memory.result, average)
        ((index, word),) = leaders_line(memory, round)
        memory.words.write(index, word)

    def average(self, round: Round) -> NDArray[np.uint8] | None:
        """That average, in the live layout, to be read until the next deposit; None when nobody had weight."""
        if not self.moves(round):
            return None
        return self.live.array if round.alone else self._attached().result

    def reduce(self, round: Round) -> Reduced:
        """Take part in `round` to its end: on return `live` holds the average (or what it held, when nobody has
        weight).

        Raises Broken "dismissed" when the run fails meanwhile.
        """
        start = time.perf_counter()
        if self.moves(round):
            round = self._in_memory(round)
        return Reduced(round, (time.perf_counter() - start) * 1000)

    def close(self) -> None:
        """End the connection. Without a `Leaving` before it this counts as a death. `live` stays mapped while views of
        it live.
        """
        self._link.close()
        self.live.close()

    # one round

    def moves(self, round: Round) -> bool:
        """Whether any data moves in `round`."""
        return bool(round.weights and self._layout.chunks)

    def _in_memory(self, round: Round) -> Round:
        memory = self._attached()
        while not round.alone:
            later = self._await_commit(round)
            if later is None:
                np.copyto(self.live.array, memory.result)
                return round
            round = later
            if not round.weights:  # whoever had moved went with the host: no data, no commit
                return round
        Share(memory, round, memory.ranks.index(self._rank), self._adder).run()
        line = finish_line(memory, round)
        while True:
            self._stop_if_dismissed()  # before each wait: it may have been read together with the Round
            if wait_until(lambda: crossed(memory, line), self._look):
                return round

    def _await_commit(self, round: Round) -> Round | None:
        """None when the average may be applied; a later attempt of the round when this one will not come to an end."""
        while True:
            for message in list(self._inbox):
                if isinstance(message, Commit) and (message.round, message.attempt) == (round.round, round.attempt):
                    self._inbox.remove(message)
                    return None
                if isinstance(message, Round) and message.round == round.round and message.attempt > round.attempt:
                    self._inbox.remove(message)
                    return message
            self._stop_if_dismissed()
            self._read()

    def _stop_if_dismissed(self) -> None:
        for message in self._inbox:
            if isinstance(message, Dismiss):
                raise Broken("dismissed", "cannot go on training", message.reason)

    # the socket

    def _look(self) -> bool:
        """Read what has come, without waiting; True when something had."""
        something = bool(self._poll.poll(0))  # not select: a script may hold more descriptors than that can count
        if something:
            self._read()
        return something

    def _read(self) -> None:
        for frame in self._checked(self._link.receive):
            message: RankDown = decode_message(frame.body, RankDown, "this host's relay")
            if isinstance(message, Attach):
                self._attach(message)
            elif isinstance(message, Restore):
                self._restored = Segment.received(self._link.fds.popleft(), message.size)
                self._restored.close()  # mapped
            else:
                self._inbox.append(message)

    def _attached(self) -> HostMemory:
        while self._memory is None:  # it is sent before any Round; only a relay that errs gets us here twice
            self._read()
        return self._memory

    def _attach(self, attach: Attach) -> None:
        layout, count = self._layout, len(attach.ranks)
        if (attach.total_bytes, attach.sum_bytes) != (
            layout.total_bytes,
            layout.sum_bytes,
        ) or self._rank not in attach.ranks:
            raise Broken("bad-attach", "cannot share memory with the relay", "it laid the model out differently")
        sizes = [control_bytes(count)] + [layout.total_bytes] * (1 + count)
        if len(self._link.fds) < len(sizes):  # more: a Restore came right behind
            raise Broken(
                "bad-attach",
                "cannot share memory with the relay",
                f"{len(self._link.fds)} descriptors came for {len(sizes)}",
            )
        segments = [Segment.received(self._link.fds.popleft(), size) for size in sizes]
        for segment in segments:
            segment.close()  # mapped; the descriptors have done their work
        control, result = segments[:2]
        mapped = zip(attach.ranks, segments[2:], strict=True)
        lives = [self.live.array if rank == self._rank else segment.array for rank, segment in mapped]
        self._memory = HostMemory(attach.ranks, layout, Words(control, count), lives, result.array)

    def _checked(self, step: Callable[[], T]) -> T:
        try:
            return step()
        except LinkEnded as ended:
            raise self._lost(ended) from None

    def _lost(self, ended: LinkEnded) -> Fault:
        return Transient(
            "relay-lost", f"rank {self._rank} cannot go on", f"{RELAY_GONE} ({ended.why})",
            "the run's log names the first cause",
        )  # fmt: skip


def _close_quietly(sock: socket.socket | None) -> None:
    """In a forked child (a DataLoader's worker): or the relay would see the rank alive as long as its child."""
    if sock is not None:
        try:
            sock.close()
        except OSError:
            pass
