"""events.jsonl: what the window heard, in the order in which it heard it. Pure; `run_dir.py` writes the rows.

Hosts' clocks differ, so no row holds a host's time: `t` is the window's own, seconds since it opened, and the order of
the rows is the order in which links spoke. After a run that is what causes are read from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flodl_window import events as ev
from flodl_window.aftermath.masking import Mask
from flodl_window.run import Run
from flodl_window.verdict import Incident
from flodl_wire import hub_messages as hub
from flodl_wire import join_messages as join

NAME = "events.jsonl"
MOST_ROWS = 20_000  # a thousand hosts with eight ranks each come, start and leave; a flood beyond is left out
TALK = 4_000  # of them for steps and notices: a worker that talks all day must not cost us the exits
TAIL = 50  # lines

Row = dict[str, Any]


class Record:
    """Turns what happens into rows. `opened`: the clock's now when the window opened."""

    def __init__(self, opened: float, mask: Mask) -> None:
        self._opened = opened
        self._mask = mask
        self._rows = self._talk = 0
        self._judged = False
        self._hosts: dict[int, str] = {}

    def opened(self, facts: Row) -> Row:
        """The first row: what was started, with what, by whom."""
        return {"t": 0.0, "kind": "opened", **facts}

    def row(self, now: float, kind: str, /, **more: Any) -> Row:
        """One row; empty values are left out."""
        kept = {name: self._clean(value) for name, value in more.items() if value not in (None, "", [], (), {})}
        return {"t": round(now - self._opened, 3), "kind": kind, **kept}

    def note(self, event: ev.Event, machine: Run, now: float) -> list[Row]:
        """What `event` is worth, asked before the machine takes it in."""
        row = self._row_of(event, machine, now)
        if row is None or self._rows >= MOST_ROWS:
            return []
        if row["kind"] in ("step", "notice", "refused"):
            self._talk += 1
            if self._talk > TALK:
                return []
        self._rows += 1
        if self._rows == MOST_ROWS:
            return [row, self.row(now, "full", text=f"more than {MOST_ROWS} events: the rest is left out")]
        return [row]

    def verdict(self, machine: Run, now: float) -> list[Row]:
        """The verdict, once it is spoken, with every misfortune that was weighed."""
        if self._judged or machine.verdict_at is None:
            return []
        self._judged = True
        cause, world = machine.cause, machine.world
        losses = world.losses if world is not None else []
        incidents = [*(loss.incident for loss in losses), *machine.inquest.incidents]
        weighed = list({id(each): each for each in incidents}.values())
        lives = list(world.ranks.values()) if world is not None else []
        return [
            self.row(
                now,
                "verdict",
                phase=machine.phase.value,
                text=machine.why,
                cause=self._incident(cause) if cause is not None else None,
                weighed=[self._incident(each) for each in weighed[:100]],
                lost=[rank for loss in losses for rank in loss.ranks],
                ranks=[[life.rank, life.host, life.device, life.status, life.why] for life in lives],
            )
        ]

    def _incident(self, incident: Incident) -> Row:
        at = round(incident.at - self._opened, 3)
        row: Row = {"t": at, "surety": incident.surety.name.lower(), "what": incident.what}
        for name in ("host", "rank", "why", "fix"):
            value = getattr(incident, name)
            if value not in (None, ""):
                row[name] = value
        if incident.tail:
            row["tail"] = incident.tail[-TAIL:]
        return row

    def _row_of(self, event: ev.Event, machine: Run, now: float) -> Row | None:
        match event:
            case ev.HelloReceived(link, hello, address):
                self._hosts[link] = hello.host
                return self._hello(hello, address, link, now)
            case ev.LinkMessage(link, message):
                return self._message(message, machine.host_of(link) or self._hosts.get(link, ""), now)
            case ev.LinkClosed(link, why):
                host = machine.host_of(link) or self._hosts.pop(link, "")
                return self.row(now, "closed", host=host, why=why) if host else None
            case ev.FanoutReported(event=report):
                if report.kind == "line":
                    return None
                tail = report.text.splitlines()[-TAIL:] if report.kind == "exited" else []
                return self.row(
                    now, f"agent_{report.kind}", host=report.host, code=report.code, command=report.command, tail=tail
                )
            case ev.FanoutEnded(how, tail):
                return self.row(now, "fanout_ended", how=how, tail=list(tail[-TAIL:]))
            case ev.HubReported(message):
                return self._hub(message, now)
            case ev.HubEnded(how, tail):
                return self.row(now, "hub_ended", how=how, tail=list(tail[-TAIL:]))
            case ev.RunsServed(runs):
                return self.row(now, "published", run=runs[-1]) if machine.window.served and runs else None
            case ev.StrangerRefused(address, fault):
                return self.row(now, "refused", address=address, code=fault.code, text=str(fault))
            case ev.Interrupted(signal):
                return self.row(now, "interrupted", signal=signal)
        return None

    def _hello(self, hello: join.Hello, address: str, link: int, now: float) -> Row | None:
        if hello.rehearsal:
            return None
        return self.row(
            now,
            "hello",
            host=hello.host,
            address=address,
            python=hello.python,
            torch=hello.torch_version,
            libtorch=hello.libtorch,
            flodl=hello.flodl,
            nccl=".".join(map(str, hello.nccl_version)) if hello.nccl_version else "",
            cores=hello.cores,
            devices=[offer.label or offer.kind for offer in hello.devices[:64]],
        )

    def _message(self, message: join.JoinUp, host: str, now: float) -> Row | None:
        if not host:
            return None
        match message:
            case join.RankExited():
                return self.row(
                    now,
                    "rank_exited",
                    host=host,
                    rank=message.rank,
                    code=message.code,
                    signal=message.signal,
                    ordered=message.ordered or None,
                    out_of_memory=message.out_of_memory or None,
                    stood_still_s=round(message.stood_still_s, 1) or None,
                    tail=message.tail[-TAIL:],
                )
            case join.RelayExited():
                return self.row(
                    now,
                    "relay_exited",
                    host=host,
                    code=message.code,
                    signal=message.signal,
                    stood_still_s=round(message.stood_still_s, 1) or None,
                    tail=message.tail[-TAIL:],
                )
            case join.HostFault():
                return self.row(
                    now, "fault", host=host, code=message.code, what=message.what, why=message.why, fix=message.fix
                )
            case join.Bye():
                return self.row(now, "bye", host=host, why=message.reason)
            case join.Step():
                return self.row(now, "step", host=host, rank=message.rank, text=message.text)
        return None

    def _hub(self, message: hub.FromHub, now: float) -> Row | None:
        match message:
            case hub.RelayIn(host):
                return self.row(now, "relay_in", host=host)
            case hub.RankIn(rank):
                return self.row(now, "rank_in", rank=rank)
            case hub.TrainingBegan(text):
                return self.row(now, "began", text=text)
            case hub.EpochDone():
                return self.row(now, "epoch", text=message.text)
            case hub.Notice(text):
                return self.row(now, "notice", text=text)
            case hub.Expelled(rank, seconds):
                return self.row(now, "expelled", rank=rank, seconds=round(seconds, 1))
            case hub.Finished():
                return self.row(now, "finished")
            case hub.HubFailed():
                return self.row(
                    now,
                    "hub_failed",
                    code=message.code,
                    what=message.what,
                    why=message.why,
                    fix=message.fix,
                    rank=message.rank,
                )
        return None

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mask.known(value)
        if isinstance(value, Sequence):
            return [self._clean(each) for each in value]
        if isinstance(value, dict):
            return {name: self._clean(each) for name, each in value.items()}
        return value
