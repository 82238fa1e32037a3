"""Windows and rounds: deal plans, collect deposits, average, count what was merged, begin again.

A *window* is one plan per living rank; when every plan's deposit is in, a *round* averages them and carries the next
plans along. A span counts as merged when its round is decided, and not before: when a host is lost in the middle, the
round runs again without it and the host's spans return to the pool. Epochs never share a window.

In cpu_async a window is dealt while the one before it is still being done (`ahead`), and a *free* round averages
snapshots while the ranks compute on. Such a window is never taken back: a free round carries no plans. At an epoch's
end nobody is ahead, so everybody waits for its last round, whose average is the epoch's model.

A rank that deposits before the others is dealt another piece of the window (pieces.py), if that is worth its way.

Pure: called by the coordinator, answers with orders.
"""

from __future__ import annotations

import statistics

import msgspec

from flodl_planes.coordinator.accounting import Accounts, Carried
from flodl_planes.coordinator.callback_rank import CallbackRank
from flodl_planes.coordinator.cohort import READY, SILENT, Cohort
from flodl_planes.coordinator.costs import Costs
from flodl_planes.coordinator.dealing import Dealer
from flodl_planes.coordinator.hub_events import CommitRound, HubOrder, SendRank, StartRound
from flodl_planes.coordinator.pieces import Pieces
from flodl_planes.coordinator.pool import Ledger, Pool, Span, batches_in, samples_in
from flodl_planes.coordinator.rounds import EpochMerged, OpenRound
from flodl_planes.coordinator.saving import Saving
from flodl_planes.coordinator.weights import steps_of, weigh
from flodl_planes.elche.cadence import Measured
from flodl_planes.records.cursor import Cursor
from flodl_wire.faults import Broken
from flodl_wire.plane_messages import Deposit, Moved, Plan, Round, Terms


class Training:
    """The state between the first plan and the last average. `living` ranks always hold exactly one plan, if only an
    empty one.
    """

    def __init__(
        self, terms: Terms, cohort: Cohort, dealer: Dealer, accounts: Accounts, *, direct: bool = False
    ) -> None:
        self.terms = terms
        self.direct = direct  # the ranks move the tensors: a deposit dies with its rank
        self.cohort = cohort
        self.dealer = dealer
        self.accounts = accounts
        self.callback = CallbackRank(accounts, wanted=terms.evaluates, chosen=terms.callback_rank)
        self.saving = Saving(terms, 0.0)
        self.epoch_batches = -(-terms.dataset // terms.batch_size)
        self.merged_epochs = 0
        self.ledger = Ledger(terms.dataset)
        self.plans: dict[int, Plan] = {}
        self.deposits: dict[int, Deposit] = {}
        self.ahead: dict[int, Plan] = {}  # of the window after `plans`; the ranks have them already
        self.issued_at = 0.0
        self._deposited_at: dict[int, float] = {}
        self._pieces = Pieces()
        self._costs = Costs()
        self.open: OpenRound | None = None
        self.interrupted = False
        self.final = False  # the last average is decided
        self.rounds_before = 0  # of the run that this one goes on from
        self.decided_round = 0
        self.worked: set[int] = set()  # ranks whose work is in that round's average
        self._window = 0
        self._round = 0
        self._given = (False, False)  # round 0 is of a checkpoint; and ranks are handed a state with it
        self._pools: dict[int, Pool] = {}

    # --- what the coordinator calls

    def stand_at(self, cursor: Cursor) -> None:
        """Before `begin`: the state that a checkpoint was saved in. What it has merged is not dealt again."""
        self.merged_epochs, self.rounds_before = cursor.epoch, cursor.rounds
        merged = [(start, count) for start, count in cursor.merged]
        self.ledger.merge(merged)
        self.ledger.skipped = [(start, count) for start, count in cursor.skipped]
        self._pools[cursor.epoch] = Pool(self.terms.dataset, self.terms.batch_size, merged)
        self.accounts.epochs = list(cursor.history)
        if cursor.unevaluated is not None and not merged:  # the model that all begin with is that epoch's
            self.callback.awaits(cursor.epoch - 1)
        self.accounts.carried = Carried(cursor.samples, cursor.loss_sum, cursor.loss_samples, cursor.wall_s)

    def begin(self, now: float, *, given: bool = False, state: bool = False) -> list[HubOrder]:
        """Round 0: rank 0's model for everyone, or the one `given` by a checkpoint, and the first plans."""
        self.saving = Saving(self.terms, now)
        self._round, self._given = 0, (given, state)
        return self._order(OpenRound(0, 0, {}, False), now)

    def deposited(self, rank: int, deposit: Deposit, now: float) -> list[HubOrder]:
        """A rank has done its plan. Raises Broken when it did something else."""
        plan = self.plans.get(rank)
        if plan is None or plan.window != deposit.window or rank in self.deposits:
            expected = f"window {plan.window}" if plan and rank not in self.deposits else "nothing"
            raise Broken(
                "bad-deposit",
                f"cannot use rank {rank}'s work",
                f"it delivered window {deposit.window}, expected was {expected}",
            )
        first = self._pieces.count.get(rank, 0) == 0
        if first:
            deposit = self._costs.whole(rank, deposit)
        deposit = self._pieces.deposited(rank, deposit, now)
        wanted = samples_in(_spans(plan))
        if deposit.samples != wanted:
            raise Broken(
                "samples-differ",
                f"cannot count rank {rank}'s work",
                f"its plan of window {plan.window} has {wanted} samples, it did {deposit.samples}",
                "let the loop over t.batches() run to its end",
            )
        self.deposits[rank] = deposit
        self._deposited_at[rank] = now
        saved = self.saving.deposited(rank, plan) if first else []
        return [*saved, *self.advance(now)]

    def held(self, rank: int) -> int:
        """Samples of the rank's window, all pieces of it that it was given."""
        return samples_in(_spans(self.plans[rank])) if rank in self.plans else 0

    def awaits(self, message: Moved) -> bool:
        """Whether it is about the attempt that is under way."""
        opened = self.open
        here = opened is not None and (opened.number, opened.attempt) == (message.round, message.attempt)
        return here and not self.interrupted

    def moved(self, rank: int, message: Moved) -> list[HubOrder]:
        """A rank has the average of a direct round; the last one's word is the round's."""
        opened = self.open
        if opened is None or not self.awaits(message):
            return []
        opened.moved.add(rank)
        if not opened.moved >= set(opened.hands):
            return []
        return [CommitRound(opened.number, opened.attempt)]

    def decided(self, number: int, attempt: int, now: float) -> list[EpochMerged]:
        """A round's average is certain. Answers with the epoch it completed, if it did."""
        done = self.open
        if done is None or (done.number, done.attempt) != (number, attempt):
            return []
        self.open, self.interrupted = None, False
        self.issued_at = now  # an average that took its time is nobody's standing still
        self.decided_round = number
        self.final = done.final
        self._window_begins(now)
        if number == 0:
            self.accounts.begin(now)
            return []
        self.worked = {rank for rank, (_, deposit) in done.took.items() if deposit.samples}
        took = {rank: (self._batches(plan), deposit) for rank, (plan, deposit) in done.took.items()}
        for plan, deposit in done.took.values():
            self.ledger.merge(_spans(plan))
            if deposit.poisoned:
                self.ledger.skipped += _spans(plan)
                self.accounts.undone += deposit.samples
        self.accounts.merged(now, took)
        if not self.ledger.complete:
            return []
        merged = EpochMerged(self.merged_epochs, self.ledger.spans())
        self._pools.pop(self.merged_epochs, None)
        self.merged_epochs += 1
        self.ledger = Ledger(self.terms.dataset)
        return [merged]

    def lost(self, rank: int) -> int:
        """A rank is dead; answers how many of its samples return to the pool. Call `advance` afterwards."""
        self.dealer.drop(rank)
        self.callback.lost(rank)
        self._pieces.lost(rank)
        returned = 0
        for holder in [rank for rank in self.plans if self._forfeits(rank)]:
            plan = self.plans.pop(holder)
            self.deposits.pop(holder, None)
            self._put_back(plan)
            returned += samples_in(_spans(plan))
        for holder in [rank for rank in self.ahead if self.cohort[rank].state not in (READY, SILENT)]:
            plan = self.ahead.pop(holder)
            self._put_back(plan)
            returned += samples_in(_spans(plan))
        return returned

    def evaluate_again(self) -> list[HubOrder]:
        """The last evaluation's rank died over it: ask another (all hold the last average)."""
        rank = self.callback.assign(None, self.cohort.living) if self.final else None
        if rank is None:
            return []
        self._window += 1
        plan = Plan(self._window, self.terms.epochs - 1, [], evaluate=self.callback.epoch)
        self.plans[rank] = plan
        return [SendRank(rank, plan)]

    def look_ahead(self) -> list[HubOrder]:
        """A round is decided: in cpu_async the window after the present one goes out, if the epoch has one."""
        pool = self._pools.get(self.merged_epochs)
        if not self.dealer.ahead or self.ahead or not self.plans or self.final or self.open is not None:
            return []
        if pool is None or not pool.batches or self.dealer.holds_back or self.callback.orphaned:
            return []  # what comes next waits for its round: it has an epoch's end, or an evaluation, behind it
        self.ahead = self._window_of(self.merged_epochs, self.cohort.living, self._busy(), None)
        for rank, plan in self.ahead.items():
            plan.overshoot = self.dealer.allowance(rank)
        return [SendRank(rank, plan) for rank, plan in self.ahead.items()]

    def advance(self, now: float) -> list[HubOrder]:
        """Start the round that is due, if one is."""
        if self.final or self._unsettled():
            return []
        if self.open is not None:
            return self._again(self.open, now) if self.interrupted else []
        further = self._further(now)
        if not self.plans or any(rank not in self.deposits for rank in self.plans):
            return further
        took = {rank: (self.plans[rank], self.deposits[rank]) for rank in sorted(self.plans)}
        self._learn(took)
        self._round += 1
        if self.ahead:
            self._costs.hidden()
        else:
            self._costs.ordered(self._deposited_at, now)
        return self._order(OpenRound(self._round, 0, took, False, free=bool(self.ahead)), now)

    # --- pieces of the window in hand

    def _window_begins(self, now: float) -> None:
        """The average before it stands; in cpu_async the ranks have begun already, each when it was done."""
        ends = {}
        for rank, plan in self.plans.items():
            work = self._batches(plan) * self.dealer.speed(rank)
            began = self._deposited_at.get(rank, now) if self.dealer.ahead else now
            if work > 0:
                ends[rank] = began + (work + (0.0 if plan.evaluate is None else self.callback.cost_ms)) / 1e3
        self._pieces.expect(ends)

    def _further(self, now: float) -> list[HubOrder]:
        """Further pieces for the ranks that are done, where that is worth while."""
        pool = self._pools.get(self.merged_epochs)
        may = [rank for rank, done in self.deposits.items() if self.cohort[rank].state == READY and not done.poisoned]
        done = {rank: self._batches(self.plans[rank]) for rank in may}
        if pool is None or not pool.batches or self.ahead or not done:
            return []
        busy = [rank for rank in self.plans if rank not in self.deposits]
        known = self._pieces.remaining(busy, now)
        under_way = {rank: known.get(rank) for rank in busy}
        seen = {rank: self._ms(rank) / batches for rank, batches in done.items() if batches and self._ms(rank) > 0}
        ways = {rank: self._pieces.way(rank) for rank in done}
        orders: list[HubOrder] = []
        further = self.dealer.further(pool, done, seen, under_way, ways)
        for rank, spans in further.items():
            whole = self.plans[rank]
            batches = batches_in(spans, self.terms.batch_size)
            step = (self.merged_epochs + 1) * self.epoch_batches - pool.batches - batches
            piece = Plan(whole.window, whole.epoch, [list(span) for span in spans], step=step, further=True)
            self.plans[rank] = msgspec.structs.replace(whole, spans=[*whole.spans, *piece.spans])
            self._pieces.handed(rank, self.deposits.pop(rank), now, batches * seen.get(rank, 0.0))
            orders.append(SendRank(rank, piece))
        return orders

    def _ms(self, rank: int) -> float:
        """What the rank's batches of this window have taken so far."""
        return self.deposits[rank].compute_ms + self.deposits[rank].data_ms

    # --- rounds

    def _again(self, before: OpenRound, now: float) -> list[HubOrder]:
        """The open round once more, without what was lost with its host."""
        hosts = set(self.cohort.live_hosts())
        kept = {}
        for rank, (plan, deposit) in before.took.items():
            if self.cohort[rank].place.host in hosts and not (self.direct and self.cohort[rank].state != READY):
                kept[rank] = (plan, deposit)
            else:
                self._put_back(plan)
        if not before.free:
            for plan in self.plans.values():
                self._put_back(plan)
            self.callback.withdrawn()
        self.interrupted = False
        return self._order(OpenRound(before.number, before.attempt + 1, kept, False, before.free), now)

    def _order(self, opened: OpenRound, now: float) -> list[HubOrder]:
        completes = self._completes(opened)
        opened.final = self._next_epoch(completes) == self.terms.epochs
        # The first model is saved only where it is the last one too: a run that owed nothing but an evaluation.
        saved = (opened.number > 0 or opened.final) and self.saving.due(completes, opened.final, now, opened.number)
        if saved:
            self.saving.opened(opened.number, self.callback.holder(self.cohort.living), opened.final)
        if not opened.free:
            self.plans, self.deposits = self._deal(completes), {}
        elif opened.attempt == 0:
            self.plans, self.ahead, self.deposits = self.ahead, {}, {}
        self._pieces.new_window()
        self.issued_at = now
        self.open = opened
        opened.hands = self.cohort.living
        message = self._message(opened, saved)
        opened.theirs = message.direct or (message.alone and message.keep and not message.apart)
        return [StartRound(message, self.cohort.live_hosts())]

    def _message(self, opened: OpenRound, saved: bool) -> Round:
        """The round as relays and ranks hear of it. `saved`: its average goes to a checkpoint."""
        whole = opened.number == 0 or saved  # a first model goes to everyone, a saved one to the checkpoint
        weights, leader = weigh(opened.took, self.terms.gamma, self.cohort.living[0], needed=whole)
        steps = bool(self.terms.outer and steps_of(opened.took))  # it learns from work, not from a broadcast
        given, state = self._given if opened.number == 0 else (False, False)
        direct = self.direct and not given
        return Round(
            round=opened.number,
            weights=weights,
            leader=leader,
            # the state of an outer optimizer is the hub's: every round goes there
            alone=len(self.cohort.live_hosts()) == 1 and not self.terms.outer and not given,
            attempt=opened.attempt,
            confirm=opened.final,
            keep=saved,
            apart=opened.free,
            wire=self.terms.wire if opened.number > 0 else "float32",  # the first model is nobody's difference
            outer=steps,
            direct=direct,
            hands=opened.hands if direct else [],
            given=given,
            state=state,
            plans={} if opened.free else {str(rank): plan for rank, plan in self.plans.items()},
        )

    def _completes(self, opened: OpenRound) -> int | None:
        """The epoch that is whole once `opened` is decided."""
        waiting = samples_in([span for plan, _ in opened.took.values() for span in _spans(plan)])
        return self.merged_epochs if self.ledger.merged + waiting == self.terms.dataset else None

    def _next_epoch(self, completes: int | None) -> int:
        """The epoch to deal from behind a round that completes `completes`."""
        return self.merged_epochs if completes is None else completes + 1

    def _learn(self, took: dict[int, tuple[Plan, Deposit]]) -> None:
        """Feed the dealer this window's figures. Batches are the plan's: steps are fewer where a script accumulates
        gradients.
        """
        measured = {
            rank: Measured(
                self._batches(plan),
                deposit.compute_ms,
                deposit.compute_ms + deposit.data_ms,
                deposit.first_ms,
                deposit.late_ms,
                self._pieces.count.get(rank, 1),
            )
            for rank, (plan, deposit) in took.items()
        }
        sync = [deposit.sync_ms for _, deposit in took.values()]
        drift = [deposit.divergence for _, deposit in took.values() if deposit.divergence is not None]
        rates = [deposit.lr for _, deposit in took.values() if deposit.lr is not None]
        if self._round > 0:  # deposits tell of the round before theirs; the first one is the broadcast
            self.accounts.averaged(statistics.fmean(sync) if sync else 0.0)
        slowest_road = max(sync, default=0.0)  # the others' averages came sooner, and they wait for it all the same
        self.dealer.report(measured, slowest_road, max(drift, default=None), max(rates, default=None))

    # --- plans

    def _deal(self, completes: int | None) -> dict[int, Plan]:
        epoch = self._next_epoch(completes)
        living = self.cohort.living
        evaluator = self.callback.assign(completes, living)
        busy = {} if evaluator is None else {evaluator: self.callback.cost_ms}
        holders = living
        if epoch == self.terms.epochs:
            holders = sorted({rank for rank in (evaluator, self.saving.owner) if rank is not None})
        return self._window_of(epoch, holders, busy, evaluator)

    def _window_of(
        self, epoch: int, holders: list[int], busy: dict[int, float], evaluator: int | None
    ) -> dict[int, Plan]:
        shares: dict[int, list[Span]] = {}
        step = epoch * self.epoch_batches
        if epoch < self.terms.epochs:
            pool = self._pools.setdefault(epoch, Pool(self.terms.dataset, self.terms.batch_size))
            step += self.epoch_batches - pool.batches
            shares = self.dealer.deal(pool, holders, self.epoch_batches, busy)
            if not any(shares.values()):  # else empty windows would follow each other for ever
                raise Broken("ledger", "cannot go on dealing", f"epoch {epoch} lacks samples that nobody holds")
        dealt = sum(batches_in(share, self.terms.batch_size) for share in shares.values())
        window = self._window
        self._window += 1
        return {
            rank: Plan(
                window=window,
                epoch=min(epoch, self.terms.epochs - 1),
                spans=[list(span) for span in shares.get(rank, [])],
                evaluate=self.callback.epoch if rank == evaluator else None,
                save=self.saving.ask(rank),
                step=step,
                world_batches=dealt,
            )
            for rank in holders
        }

    def _busy(self) -> dict[int, float]:
        """Milliseconds by which each rank will be free later than the first: nothing else brings ranks that never wait
        for one another back into step before an epoch's end.
        """
        free = {
            rank: self._deposited_at[rank] * 1e3
            + (0 if rank in self.deposits else self._batches(plan) * self.dealer.speed(rank))
            for rank, plan in self.plans.items()
            if rank in self._deposited_at
        }
        if len(free) < len(self.plans):
            return {}
        first = min(free.values())  # and half a batch of delay is none: counts are whole, and slack is rounded up
        return {rank: max(0.0, at - first - self.dealer.speed(rank) / 2) for rank, at in free.items()}

    def _put_back(self, plan: Plan) -> None:
        if plan.spans:
            self._pools[plan.epoch].put_back(_spans(plan))

    def _batches(self, plan: Plan) -> int:
        return batches_in(_spans(plan), self.terms.batch_size)

    def _forfeits(self, rank: int) -> bool:
        """Whether the rank's plan will not be merged: it is dead and has not deposited, or its deposit went with its
        host.
        """
        member = self.cohort[rank]
        if member.state in (READY, SILENT):
            return False
        return self.direct or rank not in self.deposits or member.place.host not in self.cohort.live_hosts()

    def _unsettled(self) -> bool:
        """Whether a rank hangs between silence and the word on why: its deposit may stand or fall with its host."""
        live = self.cohort.live_hosts()
        silent = self.cohort.ranks(SILENT)
        return any(self.direct or self.cohort[rank].place.host not in live for rank in silent)


def _spans(plan: Plan) -> list[Span]:
    return [(start, count) for start, count in plan.spans]
