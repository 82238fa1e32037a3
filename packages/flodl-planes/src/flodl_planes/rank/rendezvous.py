"""The run's store, for ranks that talk to one another by torch.distributed."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, NamedTuple

from flodl_planes.role.place import local_cluster, read_envelope
from flodl_wire import deadlines
from flodl_wire.faults import Refused, Transient

if TYPE_CHECKING:
    from torch._C._distributed_c10d import TCPStore

_NO_SIGNATURE = "00" * 32


class Rendezvous(NamedTuple):
    """`store`: a TCPStore that every rank of the run has in common."""

    rank: int
    world_size: int
    store: TCPStore


def rendezvous(sig: bytes | str | None = None) -> Rendezvous:
    """Meet the other ranks: for scripts that drive torch.distributed themselves, in mode nccl_* or torch.

        rank, world_size, store = flodl_planes.rendezvous(sig)
        dist.init_process_group("nccl", rank=rank, world_size=world_size, store=store)

    Every connection goes through this host's agent and the controller's one port. `sig` (32 bytes, or 64 hex digits)
    names the data: a rank whose `sig` differs from the first's is refused by host name; None, or all zero, is compared
    with nobody's. Blocks until every rank has come. Raises Refused outside of a run and in modes without a store.
    """
    place = local_cluster()
    word = _hex(sig)
    store = connect()
    mine = f"flodl/sig/{place.rank}"
    store.set(mine, f"{word} {place.host}")
    keys = [f"flodl/sig/{rank}" for rank in range(place.world_size)]
    try:
        store.wait(keys, timedelta(seconds=deadlines.deadline(deadlines.RANKS_READY)))
    except RuntimeError:
        missing = next((rank for rank, key in enumerate(keys) if not store.check([key])), 0)
        raise Transient("no-meeting", "cannot meet the other ranks", f"rank {missing} has not come") from None
    said = [store.get(key).decode().split(" ", 1) for key in keys]
    first = next(((other, host) for other, host in said if other != _NO_SIGNATURE), None)
    if first is not None and word not in (first[0], _NO_SIGNATURE):
        raise Refused(
            "dataset-differs",
            f"cannot train with rank {place.rank} on {place.host}",
            f"its data are not those of {first[1]} ({word[:8]} against {first[0][:8]})",
            "give every host the same data",
        )
    return Rendezvous(place.rank, place.world_size, store)


def connect() -> TCPStore:
    """A connection of our own to the run's store. Raises Refused where there is none, Transient out of its reach."""
    from torch._C._distributed_c10d import TCPStore

    timeout = timedelta(seconds=deadlines.deadline(deadlines.RANKS_READY))
    try:
        return TCPStore("127.0.0.1", _port(), is_master=False, timeout=timeout)
    except RuntimeError as err:
        why = str(err).partition("\n")[0]
        raise Transient("no-store", "cannot reach the run's store through this host's agent", why) from None


def _port() -> int:
    envelope = read_envelope()
    if envelope is None:
        raise Refused(
            "no-run",
            "cannot meet other ranks",
            "this script runs alone",
            "start it with fdl, as a command with cluster: true",
        )
    port = envelope.store_port or int(os.environ.get("MASTER_PORT", "0"))
    if not port:
        raise Refused(
            "no-store",
            f"cannot meet other ranks in mode {envelope.mode}",
            "its ranks talk to the controller only, and no store is served",
            "start the run in mode nccl_cadence or torch",
        )
    return port


def _hex(sig: bytes | str | None) -> str:
    word = _NO_SIGNATURE if sig is None else sig.hex() if isinstance(sig, bytes) else sig.lower()
    if len(word) != 64 or any(digit not in "0123456789abcdef" for digit in word):
        raise Refused(
            "bad-signature",
            f"cannot use {sig!r} as a signature",
            "it has 32 bytes, or 64 hex digits",
            "sha256 of the data",
        )
    return word
