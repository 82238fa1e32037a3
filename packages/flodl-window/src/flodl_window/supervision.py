"""The frozen world and what becomes of it: hosts by their links, ranks by their exits.

Rules (reference §4.6, features D4):

- Before training has begun every loss fails the run.
- A rank whose program exits non-zero fails it always. A rank lost to a signal, a host whose link broke, fell silent
  or whose relay died, is tolerated as far as the coordinator says: it is told by RankGone, and answers HubFailed when
  that was one too many.
- In mode ``torch`` nobody can go on with fewer, so every loss fails the run.
- What follows from something known (a rank that fails because its relay is gone) is an echo and never the cause.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl_window import modes
from flodl_window.events import Effect, Say, TellHub
from flodl_window.last_error import last_error
from flodl_window.verdict import Incident, Inquest, Surety
from flodl_window.words import ending, listed, ranks_text
from flodl_wire import exits
from flodl_wire.hub_messages import Finished, HubFailed, Progress, RankGone, Trained
from flodl_wire.join_messages import RELAY_GONE, HostFault, RankExited, RelayExited
from flodl_wire.result import RunResult
from flodl_wire.specs import RankPlace

TOLERANCE_CODES = ("below-tolerance", "all-lost")  # HubFailed that only counts losses we reported


@dataclass
class RankLife:
    """One rank. status: starting | ready | training | stalled | done | lost."""

    rank: int
    host: str
    device: str
    status: str = "starting"
    why: str = ""
    started: bool = False

    @property
    def ended(self) -> bool:
        return self.status in ("done", "lost")


@dataclass
class HostLife:
    """One host. status: in | running | left | lost."""

    host: str
    link: int
    ranks: list[int]
    status: str = "running"
    why: str = ""
    relay_in: bool = False
    hub_lost: bool = False  # says its relay
    relay_end: str = ""  # how its relay ended, in words
    failing: bool = False  # its ranks' ends are echoes from now on
    said_bye: bool = False
    agent_end: str = ""  # how its agent (or ssh) ended, from the fan-out

    @property
    def ended(self) -> bool:
        return self.status in ("left", "lost")


@dataclass
class Loss:
    """Ranks lost and, so far, tolerated."""

    at: float
    ranks: list[int]
    incident: Incident


@dataclass
class Supervision:
    """The world after formation. Methods take reports, leave effects in `out` and misfortunes in `inquest`."""

    mode: str
    inquest: Inquest
    hosts: dict[str, HostLife] = field(default_factory=dict)
    ranks: dict[int, RankLife] = field(default_factory=dict)
    out: list[Effect] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    expelled: dict[int, float] = field(default_factory=dict)  # by the coordinator: for standing still so many seconds
    afterwards: list[Incident] = field(default_factory=list)  # what was lost once training was whole: no loss to it
    began: bool = False
    on_their_own: bool = False  # ranks in nccl_* that met by rendezvous(): nobody need ever reach the Trainer
    trained: bool = False  # training is whole, its result is written
    finished: bool = False  # and every rank has left it
    hub_failed: HubFailed | None = None
    hub_gone: bool = False
    ending: bool = False  # the verdict is spoken: every end from now on was ordered

    @classmethod
    def of(cls, mode: str, inquest: Inquest, places: list[RankPlace], links: dict[str, int]) -> Supervision:
        world = cls(mode, inquest)
        for place in places:
            world.ranks[place.rank] = RankLife(place.rank, place.host, place.device)
            world.hosts.setdefault(place.host, HostLife(place.host, links[place.host], [])).ranks.append(place.rank)
        return world

    # what is known

    @property
    def degraded(self) -> bool:
        return bool(self.losses)

    @property
    def all_hosts_ended(self) -> bool:
        return all(host.ended for host in self.hosts.values())

    @property
    def all_ranks_done(self) -> bool:
        return all(rank.status == "done" for rank in self.ranks.values())

    def missing_relays(self) -> list[str]:
        return [host.host for host in self.hosts.values() if not host.relay_in and not self._all_ended(host)]

    def missing_ranks(self) -> list[RankLife]:
        """Ranks that have neither loaded nor ended."""
        return [rank for rank in self.ranks.values() if rank.status == "starting"]

    def ready_count(self) -> int:
        return sum(rank.status not in ("starting", "lost") for rank in self.ranks.values())

    def loading(self) -> str:
        """How far it is, until training begins."""
        if self.on_their_own and not self.ready_count():
            return "the ranks have met, and drive torch.distributed themselves"
        relays = self.missing_relays()
        waited = f"; relay of {listed(relays)} not in yet" if relays else ""
        return f"{self.ready_count()} of {len(self.ranks)} ranks ready{waited}"

    @property
    def all_started(self) -> bool:
        return all(rank.started or rank.ended for rank in self.ranks.values())

    def _all_ended(self, host: HostLife) -> bool:
        return all(self.ranks[rank].ended for rank in host.ranks)

    # what a host's agent reports

    def rank_exited(self, report: RankExited, now: float) -> None:
        life = self.ranks.get(report.rank)
        if life is None or life.ended:
            return
        host = self.hosts[life.host]
        expelled_s = self.expelled.get(report.rank)
        how = ending(report.code, report.signal, report.out_of_memory, report.stood_still_s, expelled_s)
        clean = report.code == 0 and not report.ordered
        life.status, life.why = ("done", "") if clean else ("lost", how)
        if clean:
            self._left_clean(life, now)
            return
        # A code is what a program says itself. Under `ordered` it was ended by us: its end says nothing about it.
        by_itself = report.signal is None and not report.stood_still_s
        code = report.code if by_itself and not report.ordered else None
        self.out.append(TellHub(RankGone(life.rank, False, how, code)))
        if self.ending or report.ordered:
            return
        what = f"rank {life.rank} on {life.host} {how}"
        said = last_error(report.tail, report.code, report.signal)
        incident = Incident(now, Surety.CAUSE, what, life.host, life.rank, said, tail=report.tail)
        echo = host.failing or host.hub_lost or self.hub_gone or any(RELAY_GONE in line for line in report.tail)
        echo |= self.hub_failed is not None and not self._is_culprit(life.rank)
        if by_itself:
            incident.surety = Surety.ECHO if echo else Surety.CAUSE
            self.inquest.add(incident)
        else:
            self._lose([life], incident, now, echo=host.failing or self.hub_gone)

    def relay_exited(self, name: str, report: RelayExited, now: float) -> None:
        """By a signal it is a cause, unless it was ended behind the training: its ranks were told to leave, or fail
        over it now. By a code it may only say that its ranks are gone; the agent reports HostFault a second later when
        they are not.
        """
        host = self.hosts.get(name)
        if host is None or self.ending:
            return
        host.relay_end = ending(report.code, report.signal, stood_still_s=report.stood_still_s)
        if report.signal is not None and not report.stood_still_s and not self._all_ended(host):
            what = f"relay on {name} {host.relay_end}"
            self._host_failing(host, Incident(now, Surety.CAUSE, what, name, tail=report.tail), now)
        elif report.code == exits.HUB_LOST and not self.finished:
            host.hub_lost = True  # its ranks may have told of their ends before it
            if all(other.hub_lost for other in self.hosts.values() if not other.ended):
                why = "no relay hears it any more"
                self.inquest.add(Incident(now, Surety.CAUSE, "coordinator lost", why=why, tail=report.tail))
            else:
                what = f"host {name} lost: its relay lost the coordinator"
                self._host_failing(host, Incident(now, Surety.CAUSE, what, name, tail=report.tail), now)

    def host_fault(self, name: str, fault: HostFault, now: float) -> None:
        host = self.hosts.get(name)
        if host is None or host.failing or self.ending:
            return
        if fault.code == "relay-died" and host.relay_end:
            what, why = f"relay on {name} {host.relay_end}", ""
        else:
            what, why = fault.what if name in fault.what else f"host {name}: {fault.what}", fault.why
        if self.hub_gone:
            surety = Surety.ECHO
        else:  # an agent whose stdin closed has lost the fan-out, whose own end is about to be reported
            surety = Surety.DOUBTFUL if fault.code == "stdin-closed" else Surety.CAUSE
        incident = Incident(now, surety, what, name, why=why, fix=fault.fix)
        self._host_failing(host, incident, now)

    def said_bye(self, name: str, reason: str, now: float) -> None:
        host = self.hosts.get(name)
        if host is None:
            return
        host.said_bye = True
        if host.ended:
            return
        owing = [self.ranks[rank] for rank in host.ranks if not self.ranks[rank].ended]
        if owing and not self.ending:
            incident = Incident(
                now,
                Surety.CAUSE,
                f"host {name} left with {ranks_text([r.rank for r in owing])} unaccounted for",
                name,
                why=reason,
            )
            self._host_failing(host, incident, now)
        else:
            lost = [rank for rank in host.ranks if self.ranks[rank].status == "lost"]
            host.status, host.why = (
                ("lost", host.why or reason) if host.failing else ("left", f"lost {ranks_text(lost)}" if lost else "")
            )

    # what the shell sees

    def link_closed(self, name: str, why: str, now: float) -> None:
        host = self.hosts.get(name)
        if host is None or host.ended:
            return
        host.status = "lost"
        if host.failing:
            return
        if self.ending:
            host.why = "its link closed"
            for rank in host.ranks:
                life = self.ranks[rank]
                if not life.ended:
                    life.status, life.why = "lost", "its host's link closed"
            return
        if self._all_ended(host) and all(self.ranks[rank].status == "done" for rank in host.ranks):
            host.status, host.why = "left", "without a goodbye"
            return
        if host.agent_end:
            incident = Incident(now, Surety.CAUSE, f"host {name} lost: its agent ended ({host.agent_end})", name)
        else:
            incident = Incident(
                now, Surety.DOUBTFUL, f"host {name} lost: its link closed without a goodbye", name, why=why
            )
        self._host_failing(host, incident, now)

    def silent(self, name: str, seconds: float, now: float) -> None:
        host = self.hosts[name]
        if host.ended:
            return
        incident = Incident(now, Surety.CAUSE, f"host {name} lost: no sign of life for {seconds:g} s", name)
        self._host_failing(host, incident, now)
        host.status = "lost"

    def agent_ended(self, name: str, how: str, last_words: list[str], now: float) -> None:
        """The fan-out says how a host's agent (or its ssh) ended; it names the cause of a link that broke."""
        host = self.hosts.get(name)
        if host is None:
            return
        host.agent_end = how
        for incident in self.inquest.incidents + [loss.incident for loss in self.losses]:
            if incident.host == name and incident.surety is Surety.DOUBTFUL and incident.rank is None:
                incident.what, incident.why = f"host {name} lost: its agent ended ({how})", ""
                incident.tail, incident.surety = last_words, Surety.CAUSE
                self.inquest.settle_now(now)

    # what the coordinator reports

    def relay_in(self, host: str) -> None:
        if host in self.hosts:
            self.hosts[host].relay_in = True

    def rank_in(self, rank: int, now: float) -> None:
        """A rank has loaded and waits for the others."""
        life = self.ranks.get(rank)
        if life is None or life.status != "starting":
            return
        life.status = "ready"
        ready, size = self.ready_count(), len(self.ranks)
        self.out.append(Say(f"ranks loading: {ready} of {size} ready" + (" …" if ready < size else "")))
        self.check_early_leave(now)

    def note_rates(self, progress: Progress) -> None:
        for figures in progress.ranks:
            life = self.ranks.get(figures.rank)
            if life is not None and life.status in ("training", "stalled"):
                life.status = "stalled" if figures.stalled else "training"
                first = figures.first_batch_s
                life.why = f"still in its first batch ({first:.0f} s)" if first else ""

    def hub_says_failed(self, report: HubFailed, now: float) -> None:
        self.hub_failed = report
        known = self._known_culprit(report)
        if known is not None:
            why = _joined(known.why, _sentence(report))
            self.inquest.add(
                Incident(now, known.surety, known.what, known.host, known.rank, why, report.fix, known.tail)
            )
            return
        waits = report.rank is not None or report.code in TOLERANCE_CODES
        surety = Surety.DOUBTFUL if waits else Surety.CAUSE
        host = self.ranks[report.rank].host if report.rank in self.ranks else ""
        self.inquest.add(Incident(now, surety, report.what, host, report.rank, report.why, report.fix))

    def hub_says_trained(self, report: Trained | Finished) -> RunResult | None:
        """Nothing that is lost from here on is missing in the result, which comes when every rank has left."""
        self.trained = True
        self.finished = isinstance(report, Finished)
        return report.result if isinstance(report, Finished) else None

    def hub_ended(self, how: str, tail: list[str], now: float) -> None:
        self.hub_gone = True
        if self.finished or self.ending or self.hub_failed is not None:
            return
        self.inquest.add(Incident(now, Surety.CAUSE, "coordinator lost", why=f"flodl-planes hub {how}", tail=tail))

    # inner workings

    def _tolerable(self) -> bool:
        return self.began and self.mode != modes.TORCH

    def _is_culprit(self, rank: int) -> bool:
        report = self.hub_failed
        return report is not None and (report.rank == rank or (report.rank is None and report.code in TOLERANCE_CODES))

    def _known_culprit(self, report: HubFailed) -> Incident | None:
        """The loss we already know that `report` speaks of."""
        if report.rank is not None:
            return next((loss.incident for loss in reversed(self.losses) if report.rank in loss.ranks), None)
        return self.losses[-1].incident if report.code in TOLERANCE_CODES and self.losses else None

    def _left_clean(self, life: RankLife, now: float) -> None:
        """Exit 0. Before training it is no loss: a command that never averages anything is a fair command. The hub is
        told all the same, or it would take the end of the host's relay for a loss.
        """
        self.out.append(TellHub(RankGone(life.rank, True, "exit 0", 0)))
        self.check_early_leave(now)

    def check_early_leave(self, now: float) -> None:
        """A rank that ended before training while another waits for it in the plane: nobody would ever come."""
        if self.began or self.ending or self.mode == modes.TORCH:
            return
        gone = [rank for rank in self.ranks.values() if rank.status == "done"]
        waiting = [rank.rank for rank in self.ranks.values() if rank.status == "ready"]
        if gone and waiting:
            what = f"rank {gone[0].rank} on {gone[0].host} exit 0 before training began"
            why = f"{ranks_text(waiting)} would wait for it for ever"
            fix = "every rank must reach the Trainer"
            self.inquest.add(Incident(now, Surety.CAUSE, what, gone[0].host, gone[0].rank, why, fix))

    def _host_failing(self, host: HostLife, incident: Incident, now: float) -> None:
        host.failing = True
        host.why = incident.what
        owing = [self.ranks[rank] for rank in host.ranks if not self.ranks[rank].ended]
        for life in owing:
            life.status, life.why = "lost", incident.what
            self.out.append(TellHub(RankGone(life.rank, False, incident.what)))
        if owing:
            self._lose(owing, incident, now)
        elif not self._tolerable() and not self.all_ranks_done:
            self.inquest.add(incident)

    def _lose(self, lives: list[RankLife], incident: Incident, now: float, echo: bool = False) -> None:
        """Ranks are gone and none of their programs said so: tolerated while training, as far as the coordinator
        allows.
        """
        if self.trained:
            self.afterwards.append(incident)
            self.out.append(Say(f"{incident.what} (after the training was done)"))
            return
        if echo:
            incident.surety = Surety.ECHO
        if not self._tolerable():
            self.inquest.add(incident)
            return
        self.losses.append(Loss(now, [life.rank for life in lives], incident))
        if len(lives) > 1 or self.hub_gone:  # else the coordinator's notice says it, and what becomes of its samples
            self.out.append(Say(f"{incident.what}; {ranks_text([life.rank for life in lives])} lost"))
        if self.hub_failed is not None and any(self._is_culprit(life.rank) for life in lives):
            culprit = Incident(
                now,
                Surety.CAUSE,
                incident.what,
                incident.host,
                incident.rank,
                _joined(incident.why, _sentence(self.hub_failed)),
                tail=incident.tail,
            )
            self.inquest.add(culprit)


def _joined(why: str, more: str) -> str:
    return f"{why}; {more}" if why and more else why or more


def _sentence(report: HubFailed) -> str:
    return f"{report.what}: {report.why}" if report.why else report.what
