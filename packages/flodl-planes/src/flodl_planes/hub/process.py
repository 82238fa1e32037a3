"""The hub's process: one loop that feeds the coordinator and carries out what it orders.

Everything that happens (a relay's message, a line from the launcher, the passing of time) comes through one queue and
is handled in the order in which it came; tensor bytes never pass through here (transport.py moves them in threads of
its own).
"""

from __future__ import annotations

import os
import queue
import threading
import time
from pathlib import Path
from typing import Any

from flodl_planes.coordinator.agreement import DIRECT, check_mode
from flodl_planes.coordinator.hub_events import (
    AppendMetrics,
    CommitRound,
    CopyAverage,
    Exit,
    Expel,
    FindCheckpoint,
    HubEvent,
    HubOrder,
    Rescue,
    RoundNotBegun,
    SendRank,
    StartRound,
    Tell,
    Tick,
    WriteCheckpoint,
)
from flodl_planes.coordinator.machine import Coordinator
from flodl_planes.coordinator.roads import Limits
from flodl_planes.coordinator.transport_events import Met, Taken
from flodl_planes.hub.launcher_pair import Closed, LauncherPair, PassedSocket
from flodl_planes.hub.saver import Saver
from flodl_planes.hub.transport import HubTransport
from flodl_planes.records.metrics_file import MetricsFile
from flodl_wire import deadlines, environ, exits, hub_messages, preface
from flodl_wire.channel import parse_salt
from flodl_wire.faults import Fault
from flodl_wire.hub_messages import HubFailed, Notice, Progress, Ready, Stop
from flodl_wire.specs import HubSpec

GRACE = 2.0  # from a rank's silence to the launcher's word on why; two beats
ROUND_STALL = 300.0  # an average that stands still for so long waits for no slow network any more


class Hub:
    """One run. `pair` is the launcher's socket; its end is our end."""

    def __init__(self, spec: HubSpec, pair: Any) -> None:
        self.spec = spec
        self.folder = Path(spec.run_dir)
        self._pair = LauncherPair(pair)
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        limits = Limits(
            grace_s=deadlines.deadline(GRACE),
            explain_s=deadlines.deadline(deadlines.SILENCE + GRACE),
            stall_s=deadlines.deadline(ROUND_STALL),
        )
        self._coordinator = Coordinator(spec.run, spec.mode, limits, os.environ.get(environ.RESUME) or None)
        self._metrics = MetricsFile(self.folder)
        self._transport: HubTransport | None = None
        self._saver: Saver | None = None
        self._store: Any = None
        self._code: int | None = None  # once set: all is said, wait for the launcher to let go

    def run(self) -> int:
        """Serve until the launcher says Stop or is gone; the exit code."""
        socket_path = ""
        try:
            fault = check_mode(self.spec.mode)
            if fault:
                raise fault
            salt = parse_salt(self.spec.salt_hex, "the hub's salt") if self.spec.salt_hex else b""
            if self.spec.mode == "torch" or self.spec.mode in DIRECT:
                from flodl_planes.hub.store import Store  # no torch in here: it runs in a process of its own

                # Under open admission too: every agent that was let in has the salt (J-9), so no stranger gets here.
                self._store = Store(salt or None, self._events)
            if self.spec.mode != "torch":
                socket_path = str(Path(self.spec.socket_dir) / "hub.sock")
                self._transport = HubTransport(socket_path, salt, self.spec.keyed, self._events)
                self._saver = Saver(self.folder, self._transport, self._events)
            self._pair.send(Ready(socket_path))
            threading.Thread(target=self._listen, name="launcher", daemon=True).start()
            return self._serve()
        except Fault as fault:
            self._pair.send(HubFailed(fault.code, fault.what, fault.why, fault.fix))
            raise
        except Exception as err:
            self._pair.send(
                HubFailed(
                    "hub-broke", "the coordinator broke", f"{type(err).__name__}: {err}", "this is a flaw in flodl"
                )
            )
            raise
        finally:
            for part in (self._saver, self._transport, self._store, self._metrics):
                if part is not None:
                    part.close()
            if socket_path:
                Path(socket_path).unlink(missing_ok=True)

    def _listen(self) -> None:
        while True:
            try:
                event: Any = self._pair.receive()
            except Fault as fault:
                event = fault
            self._events.put(event)
            if isinstance(event, Closed | Fault):
                return

    def _serve(self) -> int:
        tick = deadlines.beat(0.5)
        next_tick = time.monotonic() + tick
        while True:
            try:
                event = self._events.get(timeout=max(0.0, next_tick - time.monotonic()))
            except queue.Empty:
                event = Tick(0 if self._transport is None else self._transport.moved)
                next_tick = time.monotonic() + tick
            if isinstance(event, Fault):
                raise event
            if isinstance(event, Closed):
                if self._code is None and self.spec.mode != "torch":
                    self._happened(Stop("the launcher is gone"))
                return exits.NOT_DONE if self._code is None else self._code
            if isinstance(event, PassedSocket):
                self._adopt(event)
            elif isinstance(event, Taken):
                self._say(hub_messages.Taken(event.number))
            elif isinstance(event, Met):
                trainers = bool(self._coordinator.cohort.hellos)  # their ranks say hello before they meet
                if self.spec.mode in DIRECT and not trainers:
                    self._say(hub_messages.Met())
            elif self.spec.mode != "torch":
                self._happened(event)
            if isinstance(event, Stop):
                return exits.DONE if self._code is None else self._code

    def _adopt(self, passed: PassedSocket) -> None:
        home = self._store if passed.kind == preface.STORE else self._transport
        if home is None:
            self._say(hub_messages.Taken(passed.number))
            passed.sock.close()
            return
        home.adopt(passed.sock, passed.head, passed.number)

    def _happened(self, event: HubEvent) -> None:
        """One event, and whatever follows from carrying out its orders."""
        waiting = [event]
        while waiting:
            for order in self._coordinator.handle(waiting.pop(0), time.monotonic()):
                waiting += self._carry_out(order)

    def _carry_out(self, order: HubOrder) -> list[HubEvent]:
        transport, saver = self._transport, self._saver
        if transport is None or saver is None:
            return []
        if isinstance(order, StartRound):
            if order.round.round == 0:
                saver.begin(next(iter(self._coordinator.cohort.hellos.values())).tensors)
            given = saver.given if order.round.given else None
            if order.round.round:
                saver.given = None  # it stands in every rank
            decided = transport.start_round(order.round, order.hosts, given)
            return [RoundNotBegun(order.round.round)] if decided is None else [*decided]
        elif isinstance(order, CommitRound):
            transport.commit(order.round, order.attempt)
        elif isinstance(order, SendRank):
            transport.send_rank(order.rank, order.message)
        elif isinstance(order, Tell):
            self._say(order.message)
        elif isinstance(order, AppendMetrics):
            trouble = self._metrics.append(order.row)
            if trouble:
                self._say(Notice(trouble))
        elif isinstance(order, Exit):
            self._code = order.code
        elif isinstance(order, Expel):
            transport.expel(order.rank)
        elif isinstance(order, FindCheckpoint):
            return [saver.find(order)]
        elif isinstance(order, CopyAverage):
            saver.put_aside()
        elif isinstance(order, WriteCheckpoint):
            return saver.write(order)
        elif isinstance(order, Rescue):
            saver.rescue(order)
        return []

    def _say(self, message: hub_messages.FromHub) -> None:
        self._pair.send(message, droppable=isinstance(message, Progress))
