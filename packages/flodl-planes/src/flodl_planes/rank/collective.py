"""Averages that the ranks make among themselves: torch.distributed's all-reduce over flat buffers, NCCL between GPUs,
gloo between processors.

The group consists of the ranks that live: it is made anew when somebody has died, and given up as it is when one of
its collectives has failed or hangs. Nothing is applied before every rank has the average, so that a death in the middle
costs nobody more than the round.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from flodl_planes.plane.kernels import exact_weights
from flodl_planes.plane.layout import MEAN, Layout
from flodl_planes.plane.words import wait_until
from flodl_planes.rank.flat import section_of, summed_in
from flodl_planes.rank.reach import Interrupted, Meeting
from flodl_planes.rank.rendezvous import connect
from flodl_wire import deadlines
from flodl_wire.faults import Refused
from flodl_wire.plane_messages import Round

STALL_S = 300.0  # a collective that takes longer has failed; a death is told of much sooner
FORM_S = 20.0  # so has a gloo group: nobody who waits in there hears of a death; and a lost host is known by then


def kind_for(device: torch.device, mode: str) -> str:
    """What a rank on `device` talks. Raises Refused where its torch cannot."""
    if device.type == "cpu":
        return "gloo"
    if not dist.is_nccl_available():
        raise Refused(
            "no-nccl",
            f"cannot train in mode {mode}",
            "this build of torch has no NCCL",
            "install a CUDA build, or use --mode cpu_cadence",
        )
    return "nccl"


class Collective:
    """One rank's part. `flat`: its model in the live layout, bytes on its device."""

    def __init__(self, layout: Layout, flat: torch.Tensor, rank: int, host: str) -> None:
        self._layout = layout
        self._flat = flat
        self._rank = rank
        self._host = host
        self._members: list[int] = []
        self._group: Any = None
        self._busy = False  # with a collective that has not come to its end
        self._store: Any = None
        self._parts = [(section, section_of(flat, section)) for section in layout.sections]
        self._averages: dict[int, torch.Tensor] = {}

    def average(self, round: Round, turned: Callable[[], bool]) -> bool:
        """Take part in `round`, to the point where the average is here and not applied. False when `turned` said, while
        others were waited for, that there is something else to do. Raises Fault or RuntimeError when it cannot be made.
        """
        self._busy = True
        works = [work for index, _ in enumerate(self._parts) for work in self._begin(index, round)]
        done = wait_until(lambda: all(work.is_completed() for work in works), turned)
        if not done:
            return False
        for work in works:
            work.wait()
        if self._flat.device.type == "cuda":
            torch.cuda.synchronize(self._flat.device)
        self._busy = False
        return True

    def join(self, round: Round, turned: Callable[[], bool]) -> bool:
        """Have a group of exactly the round's ranks; False as in `average`."""
        if self._group is not None and self._members == round.hands:
            return True
        self.give_up()
        if self._store is None:
            self._store = connect()
        name = f"flodl/round/{round.round}.{round.attempt}"
        try:
            Meeting(self._store, name, round.hands, self._rank, turned).hold(self._host)
        except Interrupted:
            return False
        store = PrefixStore(name, self._store)
        self._group = _group(store, round.hands.index(self._rank), len(round.hands), self._flat.device)
        self._members = list(round.hands)
        return True

    def apply(self) -> None:
        """The average becomes the model."""
        for index, (_, mine) in enumerate(self._parts):
            mine.copy_(self._averages[index])

    def copy_average(self, into: Any) -> None:
        """The average as bytes in the live layout, in a buffer of this host."""
        for index, (section, _) in enumerate(self._parts):
            section_of(into, section).copy_(self._averages[index])

    def give_up(self) -> None:
        """Part with the group, whatever state it is in."""
        group, self._group = self._group, None
        if group is not None:
            with suppress(RuntimeError):
                group.abort()
            if self._busy and self._flat.device.type == "cpu":
                # gloo cannot take a collective back, and its destructor waits for it: this one is never destroyed
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(group))
        self._busy = False

    def close(self) -> None:
        """Nothing more is averaged."""
        self.give_up()
        self._store = None

    def _begin(self, index: int, round: Round) -> list[Any]:
        section, mine = self._parts[index]
        if section.op != MEAN:
            return [self._broadcast(index, mine, round.leader, round)]
        if len(round.weights) == 1:  # every bit as it was
            return [self._broadcast(index, mine, int(next(iter(round.weights))), round)]
        wide = summed_in(mine)
        total = self._room(index, mine, wide)
        weight = exact_weights(round.weights, section.dtype).get(self._rank)
        if weight is None:
            total.zero_()
        else:
            torch.mul(mine.to(wide), float(weight), out=total)
        options = dist.AllreduceOptions()
        self._be_patient(options)
        return [self._group.allreduce([total], options)]

    def _broadcast(self, index: int, mine: torch.Tensor, root: int, round: Round) -> Any:
        room = self._room(index, mine, mine.dtype)
        if root == self._rank:
            room.copy_(mine)
        options = dist.BroadcastOptions()
        options.rootRank = round.hands.index(root)
        self._be_patient(options)
        return self._group.broadcast([room.view(torch.uint8)], options)

    def _be_patient(self, options: Any) -> None:
        """A gloo group's own timeout is that of its forming."""
        if self._flat.device.type == "cpu":
            options.timeout = timedelta(seconds=deadlines.deadline(STALL_S))

    def _room(self, index: int, mine: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        room = self._averages.get(index)
        if room is None or room.dtype is not dtype:
            room = self._averages[index] = torch.empty(mine.shape, dtype=dtype, device=mine.device)
        return room


def _group(store: Any, index: int, size: int, device: torch.device) -> Any:
    if device.type == "cpu":
        gloo: Any = dist.ProcessGroupGloo
        options = gloo._Options()
        interface = os.environ.get("GLOO_SOCKET_IFNAME", "")
        # torch's default device asks the box's name for an address; a world on one box needs none
        options._devices = [
            gloo.create_device(interface=interface) if interface else gloo.create_device(hostname="127.0.0.1")
        ]
        options._timeout = timedelta(seconds=deadlines.deadline(FORM_S))
        return gloo(store, index, size, options)
    # torch's watchdog would end the process when a peer has died; we part with the group ourselves
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")
    nccl: Any = dist.ProcessGroupNCCL  # type: ignore[attr-defined,unused-ignore]
    chosen = nccl.Options()
    chosen._timeout = timedelta(seconds=deadlines.deadline(STALL_S))
    return nccl(store, index, size, chosen)
