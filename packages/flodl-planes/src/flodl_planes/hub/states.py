"""What ranks ship beside a checkpoint (optimizer, random streams), on its way to the disk: the last of each rank."""

from __future__ import annotations

import threading

from flodl_wire.plane_messages import State

Held = bytearray | memoryview


class States:
    """A memoryview is shared memory and whole; a bytearray fills piece by piece. Called by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[int, tuple[State, Held]] = {}

    def announced(self, rank: int, state: State, held: Held) -> bool:
        """A State has come; whether it is whole already. It takes the place of an older one."""
        with self._lock:
            self._held[rank] = (state, held)
            return len(held) == state.size

    def part(self, rank: int, data: bytes) -> int | None:
        """A piece more; the round it is of once that makes it whole. Pieces of one that was replaced are nothing."""
        with self._lock:
            state, held = self._held.get(rank, (None, b""))
            if state is None or not isinstance(held, bytearray) or len(held) + len(data) > state.size:
                return None
            held += data
            return state.round if len(held) == state.size else None

    def take(self, rank: int, round: int) -> memoryview | None:
        """The one beside the checkpoint of `round`, if it is whole; it is the caller's then."""
        with self._lock:
            state, held = self._held.get(rank, (None, b""))
            if state is None or state.round != round or len(held) != state.size:
                return None
            del self._held[rank]
            return memoryview(held)
