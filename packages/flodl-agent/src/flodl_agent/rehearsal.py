"""A rehearsal: everything that an admission would be, without being counted (docs/protocol.md, J-13).

The hello says that it is one; the window checks it against all others and answers, and nothing of it remains there.
Before leaving the road is measured: round trip, and the rate each way. `fdl join --try` reports it; `fdl join` itself
uses the same short visit to learn which arguments the run states, before it looks at the model they make.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TypeAlias

import msgspec

from flodl_agent import events as ev
from flodl_agent.agent import dial_fault
from flodl_agent.join_link import JoinLink, dial
from flodl_agent.road import CannotDial
from flodl_wire.address import Address
from flodl_wire.deadlines import CONNECT_BUDGET, VERDICT_WAIT, beat, deadline
from flodl_wire.faults import Transient
from flodl_wire.join_messages import (
    MAX_ECHO,
    Abort,
    Accept,
    AskSchema,
    Bye,
    Echo,
    Echoed,
    Hello,
    JoinDown,
    Reject,
    Schema,
)
from flodl_wire.plane_messages import TensorSpec

_RETRY = 0.5  # seconds between two tries to dial
_TRIPS = 9  # round trips measured; the middle one counts
_FIRST = 256 * 1024  # bytes of the first weight; on a slow line it is the only one
_ENOUGH = 0.3  # seconds a measurement should last to mean something
_MOST = 16  # MiB sent each way at most: a quarter of what the window would carry

Verdict: TypeAlias = Accept | Reject


@dataclass(frozen=True)
class Measured:
    """Seconds of one round trip; bytes a second each way."""

    round_trip: float
    up: float
    down: float


async def reach(controller: Address, salt: bytes | None) -> JoinLink:
    """A link, tried for until the connect budget is spent. Raises Fault with what was seen."""
    budget = deadline(CONNECT_BUDGET)
    until, tries = time.monotonic() + budget, 0
    while True:
        tries += 1
        try:
            return await dial(controller.host, controller.port, salt, until - time.monotonic())
        except CannotDial as err:
            failed: ev.DialFailed = err.failed
        if fault := failed.fault:  # final for this dial; the next window may hold our token
            raise Transient(fault.code, fault.what, fault.why, fault.fix)
        if time.monotonic() + beat(_RETRY) >= until:
            raise dial_fault(failed, str(controller), tries, budget)
        await asyncio.sleep(beat(_RETRY))


class Visit:
    """One rehearsal link, from the hello to the goodbye."""

    def __init__(self, link: JoinLink, schema: list[TensorSpec]) -> None:
        self._link = link
        self._schema = schema
        self._arrived: asyncio.Queue[JoinDown | None] = asyncio.Queue()
        self._why = ""
        self._number = 0
        link.on_message = self._arrived.put_nowait
        link.on_lost = self._lost

    def _lost(self, lost: ev.LinkLost) -> None:
        self._why = lost.why
        self._arrived.put_nowait(None)

    async def verdict(self, hello: Hello) -> Verdict:
        """What the window says to `hello`. Raises Fault when it says nothing."""
        self._link.send(msgspec.structs.replace(hello, rehearsal=True, own_address=self._link.own_address))
        while True:
            message = await self._next()
            if isinstance(message, (Accept, Reject)):
                return message
            if isinstance(message, AskSchema):
                self._link.send(Schema(self._schema))
            if isinstance(message, Abort):
                raise Transient("aborted", "cannot rehearse", f"the controller ended it: {message.reason}")

    async def measure(self) -> Measured:
        """The road to the window and back."""
        trips = sorted([await self._timed([Echo(0)]) for _ in range(_TRIPS)])
        trip = trips[len(trips) // 2]
        up = await self._rate(Echo(0, text="x" * _FIRST), Echo(0, text="x" * MAX_ECHO), trip)
        down = await self._rate(Echo(0, want=_FIRST), Echo(0, want=MAX_ECHO), trip)
        return Measured(trip, up, down)

    async def leave(self) -> None:
        self._link.send(Bye("the rehearsal is over"))
        await self._link.goodbye()

    async def _rate(self, small: Echo, large: Echo, trip: float) -> float:
        seconds = max(await self._timed([small]) - trip, 1e-6)
        rate = _FIRST / seconds
        if seconds >= _ENOUGH:
            return rate
        pieces = int(min(_MOST, max(1.0, _ENOUGH * rate / MAX_ECHO)))
        seconds = max(await self._timed([large] * pieces) - trip, 1e-6)
        return pieces * MAX_ECHO / seconds

    async def _timed(self, echoes: list[Echo]) -> float:
        """Seconds until all `echoes` are answered."""
        began = time.perf_counter()
        for echo in echoes:
            self._number += 1
            self._link.send(msgspec.structs.replace(echo, number=self._number))
        while True:
            message = await self._next()
            if isinstance(message, Echoed) and message.number == self._number:
                return time.perf_counter() - began

    async def _next(self) -> JoinDown:
        seconds = deadline(VERDICT_WAIT)
        try:
            message = await asyncio.wait_for(self._arrived.get(), seconds)
        except asyncio.TimeoutError:
            raise Transient("no-verdict", "cannot rehearse", f"the controller said nothing for {seconds:g} s") from None
        if message is None:
            raise Transient("link-lost", "cannot rehearse", f"lost the link: {self._why}")
        return message


async def rehearse(
    controller: Address, salt: bytes | None, hello: Hello, schema: list[TensorSpec], *, measure: bool
) -> tuple[Verdict, Measured | None]:
    """The verdict on `hello`, and how good the road is when it would be let in and `measure`. Raises Fault."""
    visit = Visit(await reach(controller, salt), schema)
    verdict = await visit.verdict(hello)
    measured = await visit.measure() if measure and isinstance(verdict, Accept) else None
    await visit.leave()
    return verdict, measured


def stated_arguments(controller: Address, salt: bytes | None, hello: Hello) -> list[str] | None:
    """The arguments that the run on `controller` states for walk-ins, None when it states none (or would not have us:
    the hello proper will be told why). Raises Fault when nobody is there.
    """
    asking = msgspec.structs.replace(hello, quiet=True)
    verdict, _ = asyncio.run(rehearse(controller, salt, asking, [], measure=False))
    return verdict.args if isinstance(verdict, Accept) else None


__all__ = ["Measured", "Verdict", "Visit", "reach", "rehearse", "stated_arguments"]
