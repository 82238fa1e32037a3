"""The relay's side of its host's ranks: who may come in, what they say, and when they are gone."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from flodl_planes.plane.frame_socket import FrameSocket, LinkEnded
from flodl_planes.plane.layout import Layout
from flodl_planes.plane.segment import Segment
from flodl_wire.faults import Broken, Fault, Refused
from flodl_wire.messages import decode_message
from flodl_wire.plane_messages import Dismiss, Leaving, RankHello, RankUp, State


class LocalRank:
    """A connection, and once it has said hello a rank: `live` is its memory, kept for good."""

    def __init__(self, link: FrameSocket, pid: int, process: int = -1) -> None:
        self.link = link
        self.pid = pid
        self.process = process  # a pidfd: the process that connected and none that got its number later
        self.hello: RankHello | None = None
        self.live: Segment | None = None
        self.here = True
        self.said_goodbye = False


class LocalRanks:
    """`serve` runs in one thread and makes the callbacks there; `send` may be called from any.

    on_message(rank, body): as it came, the hello too. on_all_here(): every expected rank has said hello. on_lost(rank,
    said_goodbye). on_state(rank, body, memory): a State with its descriptor, which the callee owns.
    """

    def __init__(
        self,
        path: str,
        expected: list[int],
        on_message: Callable[[int, bytes], None],
        on_all_here: Callable[[], None],
        on_lost: Callable[[int, bool], None],
        on_state: Callable[[int, bytes, int], None] = lambda rank, body, memory: os.close(memory),
    ) -> None:
        self.expected = expected
        self.ranks: dict[int, LocalRank] = {}
        self._on_message, self._on_all_here, self._on_lost = on_message, on_all_here, on_lost
        self._on_state = on_state
        self._listener = listen(path)
        self._stop, self._stopped = socket.socketpair()
        self._fault: Fault | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stopped, selectors.EVENT_READ)

    def serve(self) -> None:
        """Until every expected rank has come and gone. Raises what `stop` was given."""
        while not self._fault and not self._all_gone():
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, LocalRank):
                    self._read(key.data)
        if self._fault:
            raise self._fault

    def stop(self, fault: Fault) -> None:
        """End `serve` from another thread."""
        self._fault = self._fault or fault
        with contextlib.suppress(OSError):
            self._stop.send(b"!")

    def send(self, rank: int, body: bytes, memory: int | None = None) -> None:
        """Pass a message on, and a descriptor with it. A rank that is gone, or does not read, misses it; `serve` sees
        its end.
        """
        local = self.ranks.get(rank)
        if local and local.here:
            with contextlib.suppress(LinkEnded):
                local.link.send_body(body, [] if memory is None else [memory])

    def expel(self, rank: int) -> None:
        """End the rank's process. It may be stopped: nothing that asks would reach it. `serve` sees its end."""
        local = self.ranks.get(rank)
        if local and local.here and local.process >= 0:
            print(f"relay: ending rank {rank}, which has stood still for too long", file=sys.stderr)
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(local.process, signal.SIGKILL)

    def stopped(self, rank: int) -> bool:
        """Whether a signal or a debugger has stopped the rank's process."""
        local = self.ranks.get(rank)
        if local is None or not local.here:
            return False
        try:
            stat = Path(f"/proc/{local.pid}/stat").read_bytes()
        except OSError:
            return False
        return stat.rpartition(b")")[2].split()[0] in (b"T", b"t")

    def close(self) -> None:
        """Nobody is served any more; ranks that are still here see the end."""
        self._listener.close()
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, LocalRank):
                key.data.link.close()
        self._selector.close()
        self._stop.close()
        self._stopped.close()

    def absent(self) -> list[int]:
        """Ranks that were here and are not any more."""
        return [rank for rank, local in self.ranks.items() if not local.here]

    def _all_gone(self) -> bool:
        return len(self.ranks) == len(self.expected) and not any(local.here for local in self.ranks.values())

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it went away again, or descriptors ran out for the moment
            return
        pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.getuid():  # the run folder is 0700; root alone can get here
            print(f"relay: turned away process {pid} of user {uid}", file=sys.stderr)
            sock.close()
            return
        process = -1
        with contextlib.suppress(OSError, AttributeError):  # it is connected, so it lives; an old kernel has no pidfd
            process = os.pidfd_open(pid)
        local = LocalRank(FrameSocket(sock), pid, process)
        self._selector.register(sock, selectors.EVENT_READ, local)

    def _read(self, local: LocalRank) -> None:
        try:
            for frame in local.link.receive():
                self._take(local, bytes(frame.body))
        except Refused as refused:  # a stranger or a second rank 1: told why
            with contextlib.suppress(LinkEnded):
                local.link.send(Dismiss(str(refused)))
            self._end(local, str(refused))
        except LinkEnded:
            self._end(local, "")
        except Broken as broken:
            self._end(local, str(broken))

    def _take(self, local: LocalRank, body: bytes) -> None:
        message: RankUp = decode_message(body, RankUp, "a rank")
        if local.hello is None:
            if not isinstance(message, RankHello):
                raise Broken("bad-message", "cannot take this connection", "it did not start with a rank's hello")
            self._admit(local, message)
            if len(self.ranks) == len(self.expected):
                self._on_all_here()  # before the hub hears of the last one: it may begin a round at once
            self._on_message(message.rank, body)
            return
        if isinstance(message, RankHello):
            raise Broken("bad-message", f"cannot go on with rank {local.hello.rank}", "it said hello twice")
        if isinstance(message, State):
            if not local.link.fds:
                raise Broken("bad-message", f"cannot go on with rank {local.hello.rank}", "a state without its memory")
            self._on_state(local.hello.rank, body, local.link.fds.popleft())
            return
        local.said_goodbye |= isinstance(message, Leaving)
        self._on_message(local.hello.rank, body)

    def _admit(self, local: LocalRank, hello: RankHello) -> None:
        what = f"cannot admit rank {hello.rank}"
        if hello.rank not in self.expected:
            raise Refused("not-mine", what, f"this host's relay serves ranks {', '.join(map(str, self.expected))}")
        if hello.rank in self.ranks:
            raise Refused(
                "twice",
                what,
                "that rank is here already",
                "one process per rank: look for a stray one from a run before",
            )
        layout = Layout.of_sections(hello.sections)
        if len(local.link.fds) != 1:
            raise Broken(
                "bad-message", what, f"{len(local.link.fds)} descriptors came with its hello, and it must be one"
            )
        local.live = Segment.received(local.link.fds.popleft(), layout.total_bytes)
        local.hello = hello
        self.ranks[hello.rank] = local

    def _end(self, local: LocalRank, why: str) -> None:
        self._selector.unregister(local.link.sock)
        local.link.close()
        if local.process >= 0:
            os.close(local.process)
        local.here, local.process = False, -1
        if why:
            print(f"relay: {why}", file=sys.stderr)
        if local.hello:
            self._on_lost(local.hello.rank, local.said_goodbye)


def listen(path: str) -> socket.socket:
    """A listening Unix socket at `path`, taking the place of one that an earlier process left. Raises Broken."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with contextlib.suppress(FileNotFoundError):
            Path(path).unlink()
        listener.bind(path)
        Path(path).chmod(0o600)
        listener.listen(128)
    except OSError as err:
        listener.close()
        raise Broken(
            "no-socket",
            f"cannot listen on {path}",
            err.strerror or str(err),
            "is its folder there, ours, and the path short (107 bytes)?",
        ) from None
    return listener
