"""What broke first, in the order of causes. Pure: reads the rows of events.jsonl and the last state.

The window judged while the run still ran, and had to within a second. Afterwards more is known: what arrived behind the
verdict, and what each program said last. Three rules:

1. The window's verdict holds (verdict.py: the earliest of the surest), unless a later rule speaks.
2. A program that ends by itself and says that *somebody else* went away ("connection reset by peer", a collective that
   timed out) is an echo. When another rank or host was lost within ECHO seconds, be its report behind, that one is the
   cause. Of several the surest (a signal, a lost host, then an end without such words), then the first link that spoke.
3. Ends that we ordered ourselves, and everything behind the verdict that nothing above explains, follow from it.

Clocks of hosts play no part: `t` is the window's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from signal import SIGKILL
from typing import Any

from flodl_window.aftermath.signals import in_words, meaning
from flodl_window.last_error import last_error
from flodl_window.words import ending, ending_of

ECHO = 15.0  # seconds: a broken connection is noticed at once, a silent host when its beats are missed
_OTHERS = re.compile(
    r"connection (?:was )?(?:reset|closed|refused|aborted) by (?:peer|remote)|connection reset|broken pipe"
    r"|remote process exited|peer (?:closed|has gone|went away)|socket (?:closed|timeout)|DistNetworkError"
    r"|DistStoreError"
    r"|ncclRemoteError|ncclSystemError|watchdog caught collective operation timeout|collective operation timeout"
    r"|timed out (?:waiting for|after).*(?:clients|ranks|peers)|read timed? ?out|relay (?:is|has) gone"
    r"|connectFullMesh"
    r"|dismissed:|the coordinator (?:is|has) gone|EOF from|end of (?:stream|file) from",
    re.IGNORECASE,
)
_CODES = {
    126: "the command is there, but may not be run",
    127: "the command is not there",
    128: "an exit code out of range",
    255: "of an ssh: it could not connect or log in",
}

_STOOD_STILL = "SIGSTOP (19), sent by somebody, and no SIGCONT behind it; training was whole, so it was not waited for"
_EXPELLED = "it was stopped, stuck or slow for longer than the script's Trainer(stall_timeout=…) allows"


@dataclass
class Finding:
    """One thing that went wrong. `surety` 0 is surest; `at` is seconds since the window opened."""

    at: float
    what: str
    host: str = ""
    rank: int | None = None
    why: str = ""
    fix: str = ""
    meaning: str = ""  # the signal or the code in words
    tail: list[str] = field(default_factory=list)
    kind: str = ""
    surety: int = 0
    echo: bool = False


@dataclass
class Causes:
    """The first cause, what was tolerated before it, what followed. `note`: why it is not what the verdict said."""

    first: Finding | None
    before: list[Finding] = field(default_factory=list)
    after: list[Finding] = field(default_factory=list)
    note: str = ""


def find(rows: list[dict[str, Any]], state: dict[str, Any]) -> Causes:
    """`rows`: events.jsonl in order; `state`: state.json. Both may be empty."""
    at = next((at for at, row in enumerate(rows) if row.get("kind") == "verdict"), len(rows))
    verdict = rows[at] if at < len(rows) else {}
    ended = ("relay_exited", "agent_exited")  # behind the verdict by our own order
    told = [row for place, row in enumerate(rows) if place < at or row.get("kind") not in ended]
    expelled = {row.get("rank"): _number(row.get("seconds")) for row in rows if row.get("kind") == "expelled"}
    happened = [finding for row in told if (finding := _finding(row, expelled)) is not None]
    weighing = verdict.get("weighed")
    for given in weighing if isinstance(weighing, list) else []:
        if not isinstance(given, dict):
            continue
        weighed = _incident(given, "weighed")
        if not any(_same(weighed, each) for each in happened):
            happened.append(weighed)
    happened.sort(key=lambda each: each.at)
    judged = _judged(verdict, state)
    if judged is None:
        return Causes(None, _not_echoes(happened))
    judged = _with_its_agent(judged, rows)
    first, note = judged, ""
    if _speaks_of_others(judged):
        near = [
            each
            for each in happened
            if abs(each.at - judged.at) <= ECHO
            and not _same(each, judged)
            and not each.echo
            and each.kind not in ("agent", "hub")
        ]
        if near:
            best = min(near, key=lambda each: (each.surety, each.at))
            first = replace(best)
            note = (
                f"the verdict named {_short(judged.what)}, whose report came first; but its last words are about"
                " somebody else who went away"
            )
    else:
        first = _enriched(judged, happened)
    others = [each for each in happened if not _same(each, first)]
    before = [each for each in others if each.at < first.at and not each.echo and not note]
    after = [each for each in others if each not in before]
    if note:
        after.insert(0, judged)
        after = [each for at, each in enumerate(after) if at == 0 or not _same(each, judged)]
    return Causes(first, before, after, note)


def _judged(verdict: dict[str, Any], state: dict[str, Any]) -> Finding | None:
    """The cause as the verdict named it."""
    if isinstance(given := verdict.get("cause"), dict):
        return _incident(given, "verdict")
    if isinstance(given := state.get("cause"), dict):
        return Finding(
            0.0, str(given.get("what", "")), str(given.get("host", "")), _whole(given.get("rank")),
            fix=str(given.get("fix") or ""), tail=_lines(given.get("tail")), kind="verdict",
        )  # fmt: skip
    return None


def _incident(given: dict[str, Any], kind: str) -> Finding:
    """What the window weighed, as its verdict row holds it."""
    surety = str(given.get("surety", "cause"))
    return Finding(
        at=_number(given.get("t")),
        what=str(given.get("what", "")),
        host=str(given.get("host", "")),
        rank=_whole(given.get("rank")),
        why=str(given.get("why", "")),
        fix=str(given.get("fix", "")),
        tail=_lines(given.get("tail")),
        kind=kind,
        surety={"cause": 0, "doubtful": 1}.get(surety, 2),
        echo=surety == "echo",
    )


def _finding(row: dict[str, Any], expelled: dict[Any, float]) -> Finding | None:
    """What an event says went wrong; None for one that is in order, or that we ordered. `expelled`: seconds by rank."""
    kind, host, at = row.get("kind"), str(row.get("host", "")), _number(row.get("t"))
    code, signal = _whole(row.get("code")), _whole(row.get("signal"))
    tail = _lines(row.get("tail"))
    if kind == "rank_exited" and not row.get("ordered") and (signal is not None or code):
        rank = _whole(row.get("rank"))
        stood_still_s = _number(row.get("stood_still_s"))
        how = ending(code, signal, bool(row.get("out_of_memory")), stood_still_s, expelled.get(rank))
        sense = _STOOD_STILL if stood_still_s else _meaning(code, signal)
        if signal == SIGKILL and rank in expelled:
            sense = _EXPELLED
        why = last_error(tail, code, signal)
        made = Finding(at, f"rank {rank} on {host} {how}", host, rank, why, tail=tail, kind="rank")
        made.meaning = sense
        made.echo = signal is None and any(_OTHERS.search(line) for line in tail[-20:])
        made.surety = 0 if signal is not None else 2
        return made
    if kind == "relay_exited" and (signal is not None or code):
        stood_still_s = _number(row.get("stood_still_s"))
        how = ending(code, signal, stood_still_s=stood_still_s)
        made = Finding(at, f"relay on {host} {how}", host, tail=tail, kind="relay")
        made.meaning, made.echo = _STOOD_STILL if stood_still_s else _meaning(code, signal), signal is None
        return made
    if kind == "fault":
        what = str(row.get("what", ""))
        what = what if host in what else f"host {host}: {what}"
        made = Finding(at, what, host, None, str(row.get("why", "")), str(row.get("fix", "")), kind="fault", surety=1)
        made.echo = row.get("code") in ("stdin-closed", "relay-died")
        return made
    if kind == "agent_exited" and code:
        how = ending_of(code)
        return Finding(at, f"the agent of {host} ended: {how}", host, tail=tail, kind="agent", surety=1)
    if kind == "hub_failed":
        return Finding(
            at, str(row.get("what", "")), "", _whole(row.get("rank")), str(row.get("why", "")), str(row.get("fix", "")),
            kind="hub", surety=2,
        )  # fmt: skip
    if kind == "interrupted":
        return Finding(at, f"interrupted by {row.get('signal')}", kind="interrupted")
    return None


def _enriched(judged: Finding, happened: list[Finding]) -> Finding:
    """The verdict's cause with what its own event says more: a signal in words, last lines."""
    for each in happened:
        if _same(each, judged):
            told, tail = judged.meaning or each.meaning, judged.tail or each.tail
            return replace(judged, why=judged.why or each.why, meaning=told, tail=tail, at=judged.at or each.at)
    number = re.search(r"killed by signal (\d+)|\b(SIG[A-Z0-9]+)\b", judged.what)
    if number and number[1]:
        return replace(judged, meaning=in_words(int(number[1])))
    if code := re.search(r"\(?exit (\d+)", judged.what):
        return replace(judged, meaning=_CODES.get(int(code[1]), ""))
    return judged


def _with_its_agent(judged: Finding, rows: list[dict[str, Any]]) -> Finding:
    """A host whose link closed: how its agent ended says why, and the fan-out may have said so behind the verdict. By
    the abort it did not end, which goes down the link.
    """
    if not judged.host or "link closed without a goodbye" not in judged.what:
        return judged
    for row in rows:
        code = _whole(row.get("code"))
        if row.get("kind") == "agent_exited" and row.get("host") == judged.host and code:
            how = ending_of(code)
            meaning = _meaning(None, -code) if code < 0 else _meaning(code, None)
            what = f"host {judged.host} lost: its agent ended ({how})"
            return replace(judged, what=what, meaning=meaning, tail=judged.tail or _lines(row.get("tail")))
    return judged


def _meaning(code: Any, signal: Any) -> str:
    if isinstance(signal, int):
        return in_words(signal) if meaning(signal) else ""
    if not isinstance(code, int):
        return ""
    if 128 < code < 160 and meaning(code - 128):  # a shell's way to pass a signal on
        return f"128 + {code - 128}, a shell's word for {in_words(code - 128)}"
    return _CODES.get(code, "")


def _speaks_of_others(finding: Finding) -> bool:
    by_itself = finding.rank is not None and " exit " in f" {finding.what} "
    return by_itself and any(_OTHERS.search(line) for line in finding.tail[-20:])


def _not_echoes(findings: list[Finding]) -> list[Finding]:
    return [each for each in findings if not each.echo]


def _same(one: Finding, other: Finding) -> bool:
    """Two reports of one thing: the same rank, or the same host and nobody's rank."""
    if one.rank is not None or other.rank is not None:
        return one.rank == other.rank
    alike = one.what == other.what or one.kind == other.kind or "verdict" in (one.kind, other.kind)
    return one.host == other.host and alike


def _short(what: str) -> str:
    return what if len(what) <= 80 else what[:79] + "…"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _lines(value: Any) -> list[str]:
    return [str(line) for line in value] if isinstance(value, list) else []
