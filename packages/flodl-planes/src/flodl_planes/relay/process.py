"""A host's relay: takes its ranks' messages up and the hub's down, keeps time, and does what a dead rank left undone.

On the hub's own box it shares memory with the hub and no tensor crosses a socket; else it streams the host's sum up
while it is being made, and lays the average that comes down into shared memory. Otherwise it computes nothing: the
ranks sum among themselves.

Threads: the caller's, in `run`, serves the local ranks; `upstream` receives from the hub; the hub's socket has a sender
of its own when it is sealed; `substitute` does the shares of the dead, and of ranks that do not
stop for a round. `_lock` guards what the round is.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
from collections.abc import Iterator

from msgspec import Raw

from flodl_planes.plane.consensus import Uplink
from flodl_planes.plane.contribution import carries
from flodl_planes.plane.frame_socket import FrameSocket, LinkEnded
from flodl_planes.plane.kernels import Adder
from flodl_planes.plane.landing import Landing
from flodl_planes.plane.layout import MEAN, Layout
from flodl_planes.plane.outgoing import averages, sums
from flodl_planes.plane.sealed_socket import SealedSocket, dial
from flodl_planes.plane.segment import Segment
from flodl_planes.plane.share import HostMemory, Share, crossed, finish_line, hands, leaders_line
from flodl_planes.plane.words import Words, control_bytes, wait_until
from flodl_planes.relay.local_ranks import LocalRanks
from flodl_wire import deadlines, exits, frames
from flodl_wire.channel import parse_salt
from flodl_wire.faults import Broken, Fault, Transient
from flodl_wire.messages import decode_message, encode_message
from flodl_wire.plane_messages import (
    Attach,
    Commit,
    Expel,
    Expelling,
    FromRank,
    Kept,
    RankLost,
    RelayBeat,
    RelayDown,
    RelayHello,
    Restore,
    Round,
    Shared,
    StatePart,
    ToRank,
)
from flodl_wire.specs import RelaySpec

FLUSH_S = 5.0  # the last goodbyes still travel when the relay ends
PART_BYTES = 256 * 1024  # of a state, in one message: what a round's chunks have to wait for on their way


class Relay:
    """Listens for its ranks from the beginning. `run` is its life: returns the exit code, or raises what ended it."""

    def __init__(self, spec: RelaySpec) -> None:
        self._spec = spec
        self._expected = sorted(spec.ranks)
        self._lock = threading.Lock()
        self._memory: HostMemory | None = None
        self._round: Round | None = None
        self._direct = False  # it is one that the ranks make by roads of their own, and not committed
        self._landing = Landing()
        self._uplink: Uplink | None = None  # from the first round on whose floats are encoded
        self._left_undone: queue.SimpleQueue[tuple[Round, int] | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._incoming: tuple[Segment, int] | None = None  # a Restore, and how much of it is here
        self._local = LocalRanks(spec.relay_socket, self._expected, self._up, self._attach, self._lost, self._state)

    def run(self) -> int:
        """Until every rank of this host has come and gone: 0 when one of them said goodbye, else 1. Raises Fault."""
        try:
            self._hub = self._connect()
        except Fault:
            self._local.close()
            raise
        try:
            self._hub.post(RelayHello(self._spec.host, self._expected))
            for work in (self._upstream, self._substitute, self._beat):
                threading.Thread(target=work, name=work.__name__.strip("_"), daemon=True).start()
            self._local.serve()
        finally:
            self._close()
        return 0 if any(local.said_goodbye for local in self._local.ranks.values()) else 1

    def _close(self) -> None:
        if isinstance(self._hub, SealedSocket):
            self._hub.close(flush_s=FLUSH_S)
        else:
            self._hub.close()
        self._over.set()
        self._left_undone.put(None)
        self._local.close()

    def _connect(self) -> FrameSocket | SealedSocket:
        spec = self._spec
        if not spec.hub_socket:
            salt = parse_salt(spec.salt_hex, "the relay's salt") if spec.keyed else None
            return dial(spec.controller_host, spec.controller_port, salt, self._landing.place)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(spec.hub_socket)
        except OSError as err:
            sock.close()
            raise Transient("no-hub", f"cannot reach the hub at {spec.hub_socket}", err.strerror or str(err)) from None
        return FrameSocket(sock, deadlines.deadline(deadlines.SILENCE))

    # from the ranks (the serving thread)

    def _up(self, rank: int, body: bytes) -> None:
        with contextlib.suppress(LinkEnded):  # the upstream thread says so
            self._hub.post(FromRank(rank, Raw(body)))

    def _state(self, rank: int, body: bytes, memory: int) -> None:
        """A rank's State: the hub gets the memory itself, or all of it in pieces when the link has nothing else."""
        up = FromRank(rank, Raw(body))
        if isinstance(self._hub, FrameSocket):
            with contextlib.suppress(LinkEnded):
                self._hub.send(up, [memory])
            os.close(memory)
        else:
            self._hub.post(up)
            self._hub.trickle(parts(memory, rank))

    def _attach(self) -> None:
        """Every rank is here: give all of them, and a hub on this box, the host's memory."""
        ranks = [self._local.ranks[rank] for rank in self._expected]
        hello = ranks[0].hello
        assert hello
        if any(local.hello and local.hello.sections != hello.sections for local in ranks):
            return  # the hub will refuse this world and name the tensor; until then nobody's memory is shared
        layout = Layout.of_sections(hello.sections)
        lives = [local.live for local in ranks if local.live]
        control = Segment.create("control", control_bytes(len(ranks)))
        result = Segment.create("result", layout.total_bytes)
        words = Words(control, len(ranks))
        with self._lock:
            self._memory = HostMemory(self._expected, layout, words, [live.array for live in lives], result.array)
        attach = encode_message(Attach(self._expected, layout.total_bytes, layout.sum_bytes))
        fds = [segment.fd for segment in (control, result, *lives)]
        for local in ranks:
            if local.here:
                with contextlib.suppress(LinkEnded):
                    local.link.send_body(attach, fds)
        if isinstance(self._hub, FrameSocket):
            with contextlib.suppress(LinkEnded):
                self._hub.send(Shared(self._expected, layout.total_bytes, layout.sum_bytes), [*fds[1:], fds[0]])
        for segment in (control, result, *lives):
            segment.close()

    def _lost(self, rank: int, said_goodbye: bool) -> None:
        with self._lock:
            self._take_over([rank])
        with contextlib.suppress(LinkEnded):
            self._hub.post(RankLost(rank, said_goodbye))

    # from the hub (the upstream thread)

    def _upstream(self) -> None:
        try:
            while True:
                for frame in self._hub.receive():
                    if frame.kind == frames.MESSAGE:
                        self._down(decode_message(frame.body, RelayDown, "the hub"), bytes(frame.body))
                    elif frame.head:
                        self._landing.filled(frame.head)
        except LinkEnded as ended:
            why = ended.why
            self._local.stop(
                Transient(
                    "hub-lost",
                    f"the relay of {self._spec.host} cannot go on",
                    f"the hub is gone ({why})",
                    exit_code=exits.HUB_LOST,
                )
            )
        except Fault as fault:
            self._local.stop(fault)

    def _down(self, message: RelayDown, body: bytes) -> None:
        if isinstance(message, ToRank):
            self._local.send(message.rank, bytes(message.body))
        elif isinstance(message, Round):
            self._begin(message)
            self._to_all(body)
        elif isinstance(message, Commit):
            direct, self._direct = self._direct, False
            landed = direct or self._landing.complete(message.round, message.attempt)
            if isinstance(self._hub, SealedSocket) and not landed:
                raise Broken(
                    "bad-commit",
                    "cannot apply the average",
                    f"the hub committed round {message.round} before all of it came",
                )
            if self._uplink:
                self._uplink.commit(message.round, message.attempt)
            self._to_all(body)
        elif isinstance(message, Expel):
            if not self._waits_for_another(message.rank):
                with contextlib.suppress(LinkEnded):
                    self._hub.post(Expelling(message.rank))
                self._local.expel(message.rank)
        elif isinstance(message, Restore):
            self._restore(message)
        elif isinstance(message, StatePart):
            self._restore_part(message.data)

    def _to_all(self, body: bytes, memory: int | None = None) -> None:
        for rank in self._expected:
            self._local.send(rank, body, memory)

    def _waits_for_another(self, rank: int) -> bool:
        """Whether another one holds up the round, and not this rank: it has done its share. In a direct round nobody's
        share can be seen; but nothing of the script's runs there, so who is not stopped only waits.
        """
        with self._lock:
            memory, round, direct = self._memory, self._round, self._direct
        if direct:
            return not self._local.stopped(rank)
        if memory is None or round is None or not (round.alone and round.weights):
            return False
        line = finish_line(memory, round)
        if crossed(memory, line):
            return False
        return crossed(memory, [(index, word) for index, word in line if memory.ranks[index] == rank])

    def _restore(self, message: Restore) -> None:
        """What a checkpoint holds for every rank here: it came with the message, or follows in parts."""
        if isinstance(self._hub, FrameSocket):
            memory = self._hub.fds.popleft()
            self._to_all(encode_message(message), memory)
            os.close(memory)
        else:
            self._incoming = (Segment.create("restore", message.size), 0)

    def _restore_part(self, data: bytes) -> None:
        if self._incoming is None or self._incoming[1] + len(data) > self._incoming[0].nbytes:
            raise Broken("bad-message", "cannot take a piece of a checkpoint", "it was not announced")
        segment, at = self._incoming
        segment.buffer[at : at + len(data)] = data
        self._incoming = (segment, at + len(data))
        if at + len(data) == segment.nbytes:
            self._to_all(encode_message(Restore(segment.nbytes)), segment.fd)
            segment.close()
            self._incoming = None

    def _begin(self, round: Round) -> None:
        """What this process has to do in `round` beyond passing it on."""
        with self._lock:
            memory, self._round = self._memory, round
            self._direct = round.direct and bool(round.weights)
            if memory is None:
                raise Broken("bad-round", "cannot begin a round", "not every rank of this host is here")
            self._take_over(hands(memory.ranks, round) if round.apart else self._local.absent())
        if round.weights and round.keep and (round.leader in self._expected if round.direct else round.alone):
            threading.Thread(target=self._keep, args=(memory, round), name="keep", daemon=True).start()
        elif round.weights and not round.alone and not round.direct and isinstance(self._hub, SealedSocket):
            uplink = self._begin_encoded(memory, round) if round.wire != "float32" else None
            self._landing.expect(round.round, round.attempt, memory.layout, memory.result, round.wire, uplink)
            self._hub.stream(sums(memory, round, uplink))

    def _begin_encoded(self, memory: HostMemory, round: Round) -> Uplink:
        self._uplink = self._uplink or Uplink(memory.layout, memory.result)
        sends = any(carries(memory.ranks, round, chunk) for chunk in memory.layout.chunks if chunk.op == MEAN)
        self._uplink.begin(round.round, round.attempt, sends=sends)
        return self._uplink

    def _keep(self, memory: HostMemory, round: Round) -> None:
        """Give the hub the average of an alone round, or of one that the ranks make, once it stands."""
        line = leaders_line(memory, round) if round.direct else finish_line(memory, round)
        if not wait_until(lambda: crossed(memory, line), lambda: round is not self._round):
            return  # another attempt has taken its place
        kept = Kept(round.round, round.attempt)
        if isinstance(self._hub, SealedSocket):
            self._hub.stream(averages(memory.layout, memoryview(memory.result), round, lambda n: True, kept))  # type: ignore[arg-type]
        else:
            with contextlib.suppress(LinkEnded):
                self._hub.post(kept)

    # shares of the dead, and of ranks that compute on

    def _take_over(self, absent: list[int]) -> None:
        """Their shares of the present round are ours. Holding the lock."""
        if self._round and self._round.weights and self._round.alone and not self._round.direct:
            for rank in absent:
                self._left_undone.put((self._round, rank))

    def _substitute(self) -> None:
        adder = Adder()
        while True:
            undone = self._left_undone.get()
            if undone is None:
                return
            (round, rank), memory = undone, self._memory
            if memory and round is self._round and rank in hands(memory.ranks, round):
                Share(memory, round, memory.ranks.index(rank), adder).run()

    def _beat(self) -> None:
        """On the hub's own box; a sealed socket beats by itself."""
        while isinstance(self._hub, FrameSocket) and not self._over.wait(deadlines.beat()):
            with contextlib.suppress(LinkEnded):
                self._hub.post(RelayBeat())


def parts(memory: int, rank: int = -1) -> Iterator[StatePart]:
    """The content of a descriptor, piece by piece; closed behind the last one."""
    at = 0
    with os.fdopen(memory, "rb") as file:
        while data := os.pread(file.fileno(), PART_BYTES, at):
            yield StatePart(data, rank)
            at += len(data)
