"""A rank's windows: a hub decides what comes next, and between two windows the ranks' models are averaged."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from flodl_planes.plane.layout import Layout, lay_out
from flodl_planes.plane.outer import read_outer
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.drift import Drift
from flodl_planes.rank.finite import Finite
from flodl_planes.rank.gpu import gpu_of
from flodl_planes.rank.heap import keep_heap
from flodl_planes.rank.keeper import Keeper
from flodl_planes.rank.schema import Adopted, Settled, Slot, signature, slots_of
from flodl_planes.rank.windows import PlanSeen, in_words
from flodl_planes.role.place import LocalCluster
from flodl_wire.faults import Broken, Fault
from flodl_wire.plane_messages import (
    Applied,
    Deposit,
    Dismiss,
    EvalDone,
    Finish,
    Leaving,
    Plan,
    RankDown,
    RankHello,
    Round,
    TensorSpec,
    Terms,
)
from flodl_wire.result import RunResult

if TYPE_CHECKING:
    import torch


class RankWindows:
    """`socket` is this host's relay. Broken or Transient from any call means that the run is over for this rank.

    `restart`: gives the script's optimizer a fresh start, which an outer optimizer may want after each average.
    """

    def __init__(
        self,
        terms: Terms,
        place: LocalCluster,
        socket: str,
        device: torch.device,
        restart: Callable[[], None] = lambda: None,
    ) -> None:
        self.result: RunResult | None = None
        self._terms = terms
        self._place = place
        self._socket = socket
        self._device = device
        outer = read_outer(terms.outer)
        self._restart = restart if outer and outer.restarts_inner else None
        self._plane: RankPlane | None = None
        self._wait = 0.0  # seconds since the last deposit, without the evaluation
        self._sync = 0.0  # of these, from a round's arrival until it was applied
        self._drift: Drift | None = None
        self._divergence: float | None = None  # of the last round
        self._poisoned = False  # my last contribution was not finite
        self._said_goodbye = False
        self._kind = ""  # of collective, where the ranks move the tensors

    def open(self, model: torch.nn.Module, on_plan: PlanSeen, keeper: Keeper) -> Plan | None:
        self._on_plan, self._keeper = on_plan, keeper
        keep_heap()
        slots = slots_of(model)
        tensors = [slot.spec for slot in slots]
        layout = lay_out(tensors)
        live = Segment.create("live", layout.total_bytes)
        # Before the hello, which counts as the first deposit: rank 0's memory is read once the last rank has said it.
        self._adopt(slots, layout, live)
        if not self._terms.mode.endswith("_sync") and self._terms.elche.get("guard") != "none":
            self._drift = self._drift_of(layout, live)
        self._finite = self._finite_of(layout, tensors, live)
        hello = RankHello(
            rank=self._place.rank,
            terms=self._terms,
            tensors=tensors,
            sections=layout.sections,
            model_sig=signature(tensors),
            device=self._place.device,
            collective=self._kind,
            gpu=gpu_of(self._device),
        )
        self._plane = RankPlane.connect(self._socket, hello, live)
        return self._next(self._plane)

    def _adopt(self, slots: list[Slot], layout: Layout, live: Segment) -> None:
        self._adopted: Settled = Adopted(slots, layout.offsets, live.buffer, self._device)

    def _drift_of(self, layout: Layout, live: Segment) -> Drift:
        return Drift(layout, live.buffer)

    def _reduce(self, plane: RankPlane, round: Round) -> Round:
        """Take part in a round to its end; the attempt that was applied."""
        return plane.reduce(round).round

    def _finite_of(self, layout: Layout, tensors: list[TensorSpec], live: Segment) -> Finite:
        return Finite(layout, tensors, live.buffer)

    def tick(self, samples: int) -> None:
        pass  # the hub knows from the deposits, and its launcher draws the bar

    def report(self, deposit: Deposit) -> Plan | None:
        self._adopted.settle()
        return self._hand_in(deposit)

    def _hand_in(self, deposit: Deposit) -> Plan | None:
        """The deposit, with what the round before it cost, and what comes next."""
        plane = self._connected()
        deposit.wait_ms, deposit.sync_ms = self._wait * 1e3, self._sync * 1e3
        deposit.divergence = self._divergence
        deposit.poisoned = self._finite.culprit() if deposit.steps else ""
        self._poisoned = bool(deposit.poisoned)
        self._wait = self._sync = 0.0
        plane.send(deposit)
        self._sent()
        return self._next(plane)

    def _sent(self) -> None:
        """The deposit is out."""

    def evaluated(self, done: EvalDone) -> None:
        self._connected().send(done)

    def save(self, number: int) -> None:
        began = time.perf_counter()
        state = self._keeper.capture()
        self._connected().send_state(number, state, (time.perf_counter() - began) * 1e3)

    def fail(self, error: BaseException) -> None:
        if self._plane is not None and not self._said_goodbye:
            try:
                self._plane.send(Leaving(error=in_words(error)[:1000]))
            except (Fault, OSError):
                pass  # it is the lost relay that brought us here

    def close(self) -> None:
        if self._plane is not None:
            self._plane.close()

    def _connected(self) -> RankPlane:
        if self._plane is None:
            raise Broken("not-connected", "cannot report to the relay", "this rank has not joined the run")
        return self._plane

    def _next(self, plane: RankPlane) -> Plan | None:
        """Take part in rounds until there is something to do."""
        began = time.perf_counter()
        try:
            while True:
                message = plane.receive()
                if isinstance(message, Round):
                    plan = self._average(plane, message)
                    if plan is not None:
                        return plan
                elif isinstance(message, Plan):
                    self._on_plan(message)
                    return message
                elif not self._ended(plane, message):
                    return None
        finally:
            self._wait += time.perf_counter() - began

    def _ended(self, plane: RankPlane, message: RankDown) -> bool:
        """False when the run is done; raises Broken when it has failed."""
        if isinstance(message, Finish):
            self.result = message.result
            plane.send(Leaving())
            self._said_goodbye = True
            return False
        if isinstance(message, Dismiss):
            raise Broken("dismissed", "training ends here", message.reason)
        return True

    def _go_on_from(self, plane: RankPlane, given: Round, plan: Plan | None) -> None:
        """The model is a checkpoint's: so is the rest."""
        state = plane.restored() if given.state else None
        self._keeper.restore(state, plan.epoch if plan else 0, plan.step if plan else 0)

    def _average(self, plane: RankPlane, opened: Round) -> Plan | None:
        began = time.perf_counter()
        me = str(self._place.rank)
        if me in opened.plans:
            self._on_plan(opened.plans[me])  # loading goes on while we average
        drift = self._drift if opened.round > 0 else None  # the first hands out rank 0's model: nobody has drifted yet
        if drift is not None:
            drift.begin()
        closed = self._reduce(plane, opened)  # a lost host may have replaced the attempt, and with it the plans
        self._divergence = drift.end() if drift is not None else None
        self._adopted.refresh()
        if closed.outer and self._restart:
            self._restart()
        if closed.given:
            self._go_on_from(plane, closed, closed.plans.get(me))
        elif self._poisoned:
            self._poisoned = False
            self._keeper.forget()
        took = time.perf_counter() - began
        self._sync += took
        if closed.confirm:
            plane.send(Applied(round=closed.round, sync_ms=took * 1e3))
        return closed.plans.get(me)
