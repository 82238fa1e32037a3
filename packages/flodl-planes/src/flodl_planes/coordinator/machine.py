"""The hub's mind: from the first hello to the last goodbye, as a pure machine ``handle(event, now) -> orders``.

Phases, and who waits for whom:

- *forming*: the launcher has not said yet which ranks there are (relays may be here already).
- *loading*: ranks load and say hello; the last one's hello is compared with the others', and where a checkpoint is to
  be gone on from the hub looks for it. Any loss now ends the run.
- *training*: windows and rounds (training.py). A lost rank is tolerated up to max_failure; one whose program exits is
  not.
- *closing*: the last average is decided; wait until it stands in every living rank, has been evaluated, and is on disk.
- *leaving*: every rank has its result; wait for their goodbyes.
- *over*: nothing more is said; the launcher ends us.

A rank whose connection closes is *silent* until the launcher says why, at most `grace_s`: a program's exit fails the
run, a death may be tolerated, and the connection alone cannot tell them apart.
"""

from __future__ import annotations

from flodl_planes.coordinator import narration, standing
from flodl_planes.coordinator.accounting import Accounts
from flodl_planes.coordinator.agreement import DIRECT, disagreement
from flodl_planes.coordinator.cohort import ABSENT, DEAD, LEFT, READY, SILENT, Cohort
from flodl_planes.coordinator.dealing import dealer_for
from flodl_planes.coordinator.failing import Failing
from flodl_planes.coordinator.hub_events import (
    CheckpointFailed,
    CheckpointFound,
    CheckpointRefused,
    CheckpointWritten,
    Exit,
    FindCheckpoint,
    HubEvent,
    HubOrder,
    RoundNotBegun,
    SendRank,
    Tell,
    Tick,
)
from flodl_planes.coordinator.reports import Reports, not_finite
from flodl_planes.coordinator.roads import LIMITS, Limits, Roads
from flodl_planes.coordinator.stalls import Stalls, awaited
from flodl_planes.coordinator.training import Training
from flodl_planes.coordinator.transport_events import (
    FromRank,
    RankEnding,
    RankLost,
    RelayJoined,
    RelayLost,
    RoundDone,
    StateWhole,
)
from flodl_planes.plane.outer import read_outer
from flodl_wire import hub_messages as to_launcher
from flodl_wire.faults import Broken, Fault
from flodl_wire.hub_messages import Form, Notice, RankGone, Stop
from flodl_wire.plane_messages import (
    Deposit,
    Dismiss,
    EvalDone,
    Finish,
    Leaving,
    Moved,
    RankHello,
    RankUp,
    State,
)
from flodl_wire.result import RunResult

_WHOLE = "let t.epochs() and t.batches() run to their end on every rank"


class Coordinator:
    """One run. Every event returns the orders it causes, in order. `resume`: what the run was told to go on from; None:
    what the script says.
    """

    def __init__(self, run: str, mode: str, limits: Limits = LIMITS, resume: str | None = None) -> None:
        self._resume = resume
        self.run = run
        self.mode = mode
        self.limits = limits
        self.phase = "forming"
        self.cohort = Cohort([])
        self.accounts = Accounts([])
        self.training: Training | None = None
        self.reports: Reports | None = None
        self._early: list[HubEvent] = []
        self._applied: dict[int, float] = {}
        self._roads = Roads()
        self._formed_at = 0.0
        self._closing_counted = False
        self._stalls = Stalls()
        self._failing = Failing()
        self._result: RunResult | None = None

    def handle(self, event: HubEvent, now: float) -> list[HubOrder]:
        """What happened, at `now` seconds on any steady clock. Never raises a Fault: it becomes HubFailed."""
        if self.phase == "over":
            return []
        if isinstance(event, Stop):
            return self._stopped(event)
        if self.phase == "forming" and not isinstance(event, (Form, Tick)):
            self._early.append(event)
            return []
        try:
            return self._dispatch(event, now)
        except Fault as fault:
            return self._fail(fault, now)

    def _dispatch(self, event: HubEvent, now: float) -> list[HubOrder]:
        if self._failing.holds(event, self.training, now):
            return []
        if isinstance(event, FromRank):
            return self._from_rank(event.rank, event.message, now)
        if isinstance(event, RoundDone):
            return self._round_done(event, now)
        if isinstance(event, Tick):
            self._roads.heard(event.moved, now)
            return self._tick(now)
        if isinstance(event, RankGone):
            return self._gone(event, now)
        if isinstance(event, RankLost):
            return [] if event.said_goodbye else self._rank_lost(event, now)
        if isinstance(event, RelayLost):
            return self._relay_lost(event, now)
        if isinstance(event, RelayJoined):
            return self._relay_joined(event)
        if isinstance(event, Form):
            return self._formed(event, now)
        if isinstance(event, RoundNotBegun):
            if self.training:
                self.training.interrupted = True  # and wait for the RelayLost that says which host
            return []
        if isinstance(event, CheckpointFound):
            return self._found(event, now)
        if isinstance(event, CheckpointRefused):
            raise event.fault
        if isinstance(event, RankEnding):
            return self._stalls.ending(event.rank, now)
        if isinstance(event, StateWhole):
            return self.training.saving.whole(event.rank, event.round) if self.training else []
        if isinstance(event, CheckpointWritten | CheckpointFailed):
            return self._saved(event, now)
        return []

    # --- forming and loading

    def _formed(self, event: Form, now: float) -> list[HubOrder]:
        self.cohort = Cohort(event.places)
        self.accounts = Accounts(event.places)
        self.phase, self._formed_at = "loading", now
        orders: list[HubOrder] = []
        early, self._early = self._early, []
        for waiting in early:
            orders += self.handle(waiting, now)
        return orders

    def _relay_joined(self, event: RelayJoined) -> list[HubOrder]:
        expected = self.cohort.ranks_of(event.host)
        if sorted(event.ranks) != expected:
            raise Broken(
                "wrong-ranks",
                f"cannot use the relay of {event.host}",
                f"it speaks for ranks {event.ranks}, the world has {expected} there",
            )
        return [Tell(to_launcher.RelayIn(event.host))]

    def _hello(self, rank: int, hello: RankHello, now: float) -> list[HubOrder]:
        member = self.cohort[rank]
        if self.phase != "loading" or member.state != ABSENT:
            raise Broken("second-hello", f"cannot take rank {rank} in", "it is in already")
        member.state, member.hello = READY, hello
        orders: list[HubOrder] = [Tell(to_launcher.RankIn(rank))]
        gone = self.cohort.ranks(LEFT)
        if gone:
            early = Broken(
                "left-early", f"cannot begin: rank {gone[0]} has ended already", "others want to train", _WHOLE
            )
            return [*orders, *self._fail(early, now)]
        if len(self.cohort.hellos) < self.cohort.size:
            return orders
        fault = disagreement(self.cohort.hellos, self.mode)
        if fault:
            raise fault
        first = self.cohort.hellos[min(self.cohort.hellos)]
        said = self._resume or first.terms.resume
        if said is None or said == "never":
            return [*orders, *self._begin(CheckpointFound(None), now)]
        return [*orders, FindCheckpoint(said, first.terms, first.tensors)]

    def _found(self, found: CheckpointFound, now: float) -> list[HubOrder]:
        if self.phase != "loading" or self.training is not None:
            return []
        return [*(Tell(Notice(note)) for note in found.notes), *self._begin(found, now)]

    def _begin(self, found: CheckpointFound, now: float) -> list[HubOrder]:
        first = self.cohort.hellos[min(self.cohort.hellos)]
        read_outer(first.terms.outer)  # refused here, before anything is averaged with it
        dealer = dealer_for(self.mode, first.terms, self.cohort.gpus)
        direct = self.mode in DIRECT
        training = self.training = Training(first.terms, self.cohort, dealer, self.accounts, direct=direct)
        self.reports = Reports(training, now, self._formed_at)
        self.phase = "training"
        orders: list[HubOrder] = []
        if found.cursor is not None:
            standing.restore(training, found.cursor)
            if found.cursor.unevaluated and first.terms.evaluates:
                self.reports.unevaluated(training.accounts.epochs[-1], first.terms.dataset, now)
            self.accounts.resumed = found.path
            orders.append(Tell(Notice(f"goes on from {found.path}: {found.cursor.stands(first.terms.epochs)}")))
        began = to_launcher.TrainingBegan(narration.began_line(first.terms, self.cohort, first))
        return [*orders, Tell(began), *training.begin(now, given=found.cursor is not None, state=found.state)]

    # --- training

    def _from_rank(self, rank: int, message: RankUp, now: float) -> list[HubOrder]:
        if rank not in self.cohort or self.cohort[rank].state in (DEAD, LEFT):
            return []
        if isinstance(message, RankHello):
            return self._hello(rank, message, now)
        if isinstance(message, Leaving):
            return self._leaving(rank, message, now)
        training, reports = self.training, self.reports
        if training is None or reports is None:
            raise Broken("too-early", f"cannot use what rank {rank} sent", "training has not begun")
        if isinstance(message, Deposit):
            warned = reports.not_finite(rank, message.window) if message.not_finite else []
            if message.poisoned:
                warned = self._poisoned(rank, message, training, reports, now)
                if self.phase == "over":
                    return warned
            return [*warned, *training.deposited(rank, message, now)]
        if isinstance(message, Moved):
            return self._roads.moved(training, rank, message, now)
        if isinstance(message, State):
            return training.saving.announced(rank, message)
        if isinstance(message, EvalDone):
            if not training.callback.done(message.epoch, message.elapsed_ms):
                return []
            reports.evaluated(message.epoch, dict(message.metrics))
            return [*reports.epochs(now), *self._close_when_ready(now)]
        self._applied[rank] = message.sync_ms
        self.accounts.applied(rank, message.sync_ms, now)
        return self._close_when_ready(now)

    def _round_done(self, event: RoundDone, now: float) -> list[HubOrder]:
        training, reports = self.training, self.reports
        if training is None or reports is None:
            return []
        for merged in training.decided(event.round, event.attempt, now):
            reports.merged(merged)
        orders = reports.epochs(now)
        if event.round:
            orders += reports.round(now)
        if training.saving.waits_for(event.round) and training.decided_round == event.round:
            reason = "finished" if training.final else "checkpoint"
            cursor = standing.cursor(training, self.run, self.mode, reason)
            orders += training.saving.decided(event.round, cursor, now)
        failed = self._failing.due(training, now)
        if failed:
            return [*orders, *self._dispatch(failed, now)]
        if training.final and self.phase == "training":
            self.phase = "closing"
            return [*orders, *training.evaluate_again(), *self._close_when_ready(now)]
        return [*orders, *training.look_ahead(), *training.advance(now)]

    def _saved(self, event: CheckpointWritten | CheckpointFailed, now: float) -> list[HubOrder]:
        """A checkpoint is on the disk, or is not: the last one is the run's result, another only a safety."""
        training = self.training
        if training is None:
            return []
        if isinstance(event, CheckpointFailed):
            if training.saving.final:
                training.saving.done(written=False)  # the average alone may still find room
                raise event.fault
            kept = "and the checkpoint before it is kept" if training.saving.saved else "without a checkpoint so far"
            notice = Tell(Notice(f"{event.fault}; training goes on, {kept}"))
            return [notice, *training.saving.done(written=False)]
        orders = training.saving.done(written=True)
        return [*orders, *self._close_when_ready(now)]

    def _poisoned(
        self, rank: int, deposit: Deposit, training: Training, reports: Reports, now: float
    ) -> list[HubOrder]:
        where = self.cohort.where(rank)
        if training.terms.nan != "skip":
            return self._fail(not_finite(where, deposit), now, rank)
        return reports.left_out(rank, where, deposit.poisoned, training.held(rank), now)

    # --- losses

    def _rank_lost(self, event: RankLost, now: float) -> list[HubOrder]:
        self._silent(event.rank, now)
        return self._set_back(event.interrupted, now)

    def _silent(self, rank: int, now: float) -> None:
        if rank in self.cohort and self.cohort[rank].state in (READY, ABSENT):
            member = self.cohort[rank]
            member.state, member.silent_since = SILENT, now

    def _set_back(self, interrupted: int | None, now: float) -> list[HubOrder]:
        """A connection is gone, and with it a round if one is named. The launcher may have told of the death before:
        then nothing else would start that round again.
        """
        if self.training is None:
            return []
        if interrupted is not None:
            self.training.interrupted = True
        return self.training.advance(now)

    def _relay_lost(self, event: RelayLost, now: float) -> list[HubOrder]:
        self.cohort.lost_hosts.add(event.host)
        for rank in self.cohort.ranks_of(event.host):
            self._silent(rank, now)
            self.cohort[rank].why = self.cohort[rank].why or f"host {event.host} lost: {event.why}"
        return self._set_back(event.interrupted, now)

    def _gone(self, event: RankGone, now: float) -> list[HubOrder]:
        if event.rank not in self.cohort or self.cohort[event.rank].state in (DEAD, LEFT):
            return []
        where = self.cohort.where(event.rank)
        if event.code:
            return self._fail(Broken("rank-failed", f"{where} failed", event.why), now, event.rank)
        if self.phase == "leaving":
            return self._left(event.rank, now)
        if event.clean and self.phase == "loading" and not self.cohort.hellos:
            return self._left(event.rank, now)  # a command that averages nothing is a fair command
        if event.clean:
            early = Broken("left-early", f"{where} ended before training was over", event.why, _WHOLE)
            return self._fail(early, now, event.rank)
        return self._dead(event.rank, event.why, now)

    def _dead(self, rank: int, why: str, now: float) -> list[HubOrder]:
        member = self.cohort[rank]
        member.state, member.why = DEAD, self._stalls.why(rank, why)
        where = self.cohort.where(rank)
        training, reports = self.training, self.reports
        if training is None or reports is None:
            return self._fail(Broken("lost-before-training", f"cannot begin: {where} is lost", why), now, rank)
        fault = self.cohort.intolerable(training.terms.max_failure, training.direct)
        if fault:
            return self._fail(fault, now, rank)
        orders = reports.lost(rank, where, member.why, training.lost(rank), now)
        orders += training.saving.lost(rank)
        if self.phase == "closing":
            return [*orders, *training.evaluate_again(), *self._close_when_ready(now)]
        return [*orders, *training.advance(now)]

    def _tick(self, now: float) -> list[HubOrder]:
        orders: list[HubOrder] = []
        for rank in self.cohort.ranks(SILENT):
            member = self.cohort[rank]
            if self.phase != "over" and now - member.silent_since >= self.limits.grace_s:
                orders += self._gone(RankGone(rank, False, member.why or "its connection to the relay closed"), now)
        training, reports = self.training, self.reports
        if training is None or reports is None or self.phase not in ("training", "closing", "leaving"):
            return orders
        failed = self._failing.due(training, now)
        if failed:
            return [*orders, *self._dispatch(failed, now)]
        orders += self._stalls.expel(training, awaited(training, self.phase, self._applied, now), now)
        if self.phase == "leaving":
            return orders
        barred = self._roads.barred(training, self.mode, self.limits, now)
        if barred:
            return [*orders, *self._fail(barred, now)]
        return [*orders, *reports.progress(now)]

    # --- the end

    def _close_when_ready(self, now: float) -> list[HubOrder]:
        training, reports = self.training, self.reports
        if self.phase != "closing" or training is None or reports is None:
            return []
        if any(rank not in self._applied for rank in self.cohort.living):
            return []
        if self._applied and not self._closing_counted:
            self._closing_counted = True
            self.accounts.averaged(sum(self._applied.values()) / len(self._applied))
        if not training.saving.final_written or training.callback.epoch is not None:
            return []
        orders = [*reports.epochs(now), *reports.progress(now, last=True)]
        result = self._result = self._figures()
        self.phase = "leaving"
        return [*orders, Tell(to_launcher.Trained()), *(SendRank(rank, Finish(result)) for rank in self.cohort.living)]

    def _leaving(self, rank: int, message: Leaving, now: float) -> list[HubOrder]:
        where = self.cohort.where(rank)
        if message.error:
            return self._fail(Broken("rank-failed", f"{where} failed", message.error), now, rank)
        if self.phase != "leaving":
            why = "its loop over t.epochs() ended early"
            return self._fail(Broken("left-early", f"{where} left before training was over", why, _WHOLE), now, rank)
        return self._left(rank, now)

    def _left(self, rank: int, now: float) -> list[HubOrder]:
        self.cohort[rank].state = LEFT
        if self.cohort.ranks(READY, SILENT) or self._result is None:
            return []
        self.phase = "over"
        return [Tell(to_launcher.Finished(self._result)), Exit(0)]

    def _figures(self, why: str = "", verdict: str = "done") -> RunResult:
        lost = self.cohort.losses
        result = self.accounts.result(self.run, self.mode, verdict=verdict, degraded=bool(lost), why=why or lost)
        result.collective = next((hello.collective for hello in self.cohort.hellos.values() if hello.collective), None)
        return result

    def _fail(self, fault: Fault, now: float, rank: int | None = None) -> list[HubOrder]:
        if self.phase == "over":
            return []
        self.phase = "over"
        dismissed: list[HubOrder] = [
            SendRank(other, Dismiss(str(fault))) for other in self.cohort.living if other != rank
        ]
        told = to_launcher.HubFailed(
            fault.code, fault.what, fault.why, fault.fix, rank, self._figures(str(fault), "failed")
        )
        return [*dismissed, Tell(told), *self._rescue(fault.code), Exit(1)]

    def _rescue(self, code: str) -> list[HubOrder]:
        return [] if self.training is None else standing.rescue(self.training, self.run, self.mode, code)

    def _stopped(self, event: Stop) -> list[HubOrder]:
        self.phase = "over"
        if self.training is None and self.cohort.size and not self.cohort.ranks(ABSENT, READY, SILENT, DEAD):
            return [Exit(0)]  # every program ended well and none asked for an average
        told = to_launcher.HubFailed(
            "stopped", "training was stopped", event.reason, "", None, self._figures(event.reason, "failed")
        )
        return [Tell(told), *self._rescue("stopped"), Exit(1)]
