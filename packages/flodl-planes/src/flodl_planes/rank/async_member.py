"""A rank's windows in cpu_async: it computes on while the average is made, and takes it in as a correction.

A plan lies ready before the one before it is done. At a deposit the rank leaves a snapshot and goes on; between two
batches it looks whether the average has come. It stops in two places only: when it has done as many batches as its plan
allows before the average is in (`overshoot`), and at an epoch's end, where the average is everybody's model.
"""

from __future__ import annotations

import time

from flodl_planes.plane.layout import Layout
from flodl_planes.plane.rank_plane import RankPlane
from flodl_planes.plane.segment import Segment
from flodl_planes.rank.correction import Corrected
from flodl_planes.rank.member import RankWindows
from flodl_planes.rank.schema import Slot
from flodl_wire.plane_messages import Commit, Deposit, Plan, RankDown, Round


class AsyncWindows(RankWindows):
    """The windows of a rank that does not wait."""

    _adopted: Corrected

    def _adopt(self, slots: list[Slot], layout: Layout, live: Segment) -> None:
        self._adopted = Corrected(slots, layout, live.array, self._device)
        self._ready: list[Plan] = []  # that have come and not been begun, by window
        self._allowance: int | None = None  # of the present plan
        self._done = 0  # batches of it
        self._deposited: float | None = None  # when; None: its average is in
        self._open: Round | None = None  # the round of that deposit, once it has begun
        self._committed = (-1, -1)
        self._late = 0.0

    def tick(self, samples: int) -> None:
        self._done += 1
        self._take_in(wait=self._allowance is not None and self._done >= self._allowance)

    def report(self, deposit: Deposit) -> Plan | None:
        self._take_in(wait=True)  # the next snapshot takes the place of the last average
        if self.result is not None:  # the last plan was an evaluation, and the end has come in answer to it
            return None
        began = time.perf_counter()
        self._adopted.settle()
        self._sync += time.perf_counter() - began
        self._wait += time.perf_counter() - began
        deposit.late_ms, self._late = self._late * 1e3, 0.0
        return self._hand_in(deposit)

    def _sent(self) -> None:
        self._deposited = time.perf_counter()

    def _next(self, plane: RankPlane) -> Plan | None:
        """The plan that lies ready; without one, whatever the round brings that everybody waits for."""
        while not self._ready:
            began = time.perf_counter()
            message = plane.look()
            if message is None:
                plane.wait(None)
            elif not self._hear(plane, message):
                return None
            self._wait += time.perf_counter() - began
        plan = self._ready.pop(0)
        if plan.further:
            self._deposited = None  # what was left is not averaged: it is deposited anew
        self._on_plan(plan)
        self._allowance, self._done = plan.overshoot, 0
        if self._allowance == 0:
            self._take_in(wait=True)
        return plan

    def _hear(self, plane: RankPlane, message: RankDown) -> bool:
        """False when nothing more is to be done."""
        if isinstance(message, Round) and message.apart:
            self._open = message
        elif isinstance(message, Commit):
            self._committed = (message.round, message.attempt)
        elif isinstance(message, Round):
            plan = self._average(plane, message)
            self._deposited = None
            if plan is not None:
                self._lay_ready(plan)
        elif isinstance(message, Plan):
            self._lay_ready(message)
        else:
            return self._ended(plane, message)
        return True

    def _lay_ready(self, plan: Plan) -> None:
        self._ready = sorted([*self._ready, plan], key=lambda plan: plan.window)
        self._on_plan(self._ready[0])  # workers load it while the window before it is done

    def _take_in(self, *, wait: bool) -> None:
        """Hear what has come; when the average is there, take it in; `wait` for it if told so."""
        plane = self._connected()
        began = time.perf_counter()
        try:
            while True:
                while (message := plane.look()) is not None:
                    self._hear(plane, message)
                if self._deposited is None:
                    return
                if self._open is not None and self._stands(plane, self._open):
                    self._correct(plane, self._open)
                elif wait:
                    self._stand_still(plane)
                else:
                    return
        finally:
            self._wait += time.perf_counter() - began

    def _stand_still(self, plane: RankPlane) -> None:
        """Until something happens. Before the round has begun we wait for others, afterwards for the average."""
        began, averaging = time.perf_counter(), self._open is not None
        plane.wait(self._open)
        if averaging:
            self._sync += time.perf_counter() - began

    def _stands(self, plane: RankPlane, opened: Round) -> bool:
        return self._committed == (opened.round, opened.attempt) or plane.stands(opened)

    def _correct(self, plane: RankPlane, opened: Round) -> None:
        average = plane.average(opened)
        began = time.perf_counter()
        self._divergence = None
        if average is not None:
            if self._poisoned:  # nothing learned since is worth carrying over
                self._poisoned = False
                self._adopted.become(average)
                self._keeper.forget()
            else:
                self._divergence = self._adopted.correct(average, measure=self._drift is not None)
            if opened.outer and self._restart:
                self._restart()
        now = time.perf_counter()
        self._sync += now - began
        self._late = now - (self._deposited or now)
        self._deposited = self._open = None
