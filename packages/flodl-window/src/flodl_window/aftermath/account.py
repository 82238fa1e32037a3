"""The account of a run: how it ended, what broke first, who said what last, on which versions. Pure; `why` prints it,
the report shows it, the bundle carries it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flodl_window.aftermath import advice, causes, figures
from flodl_window.aftermath.causes import Causes, Finding
from flodl_window.aftermath.run_files import RunFiles
from flodl_window.words import listed
from flodl_wire.state import Afterthought

VERSION = 1
LINES = 50
MOST_VOICES = 200  # processes whose last lines are read: of a thousand ranks nobody reads more
ENDS = ("done", "degraded", "failed", "interrupted", "crashed", "running", "unknown")


@dataclass
class Voice:
    """A process and its last lines."""

    name: str  # "node-a:0", "node-b:relay"
    how: str  # in words, how it ended
    lines: list[str]
    culprit: bool = False


@dataclass
class Account:
    """`end` is one of ENDS, `sentence` says it for people."""

    run: str
    path: str
    end: str
    sentence: str
    causes: Causes
    voices: list[Voice] = field(default_factory=list)
    hosts: list[dict[str, Any]] = field(default_factory=list)
    differ: list[str] = field(default_factory=list)  # versions that are not the same everywhere
    opened: dict[str, Any] = field(default_factory=dict)
    git: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    tries: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    @property
    def first(self) -> Finding | None:
        return self.causes.first


def make(files: RunFiles, lines_of: Callable[[str], list[str]]) -> Account:
    """`lines_of`: a log's last lines by its name ("node-a-0")."""
    end, sentence = end_of(files)
    found = causes.find(files.events, files.state)
    if end == "interrupted":  # whatever the ranks did then was ordered
        found = Causes(found.first, found.before, [])
    voices = _voices(files, found, lines_of)
    code = files.first("code")
    hosts = _hosts(files)
    account = Account(files.run, str(files.path), end, sentence, found, voices, hosts, _differences(hosts))
    account.opened, account.git = files.first("opened"), code.get("git") or {}
    account.packages = code.get("packages") or account.opened.get("packages") or {}
    account.broken = files.broken
    if end == "failed" and found.first is not None:
        culprit = next((voice.lines for voice in voices if voice.culprit), [])
        account.tries = advice.what_to_try(found.first, [*culprit, *found.first.tail])
    elif end == "crashed":
        account.tries = [
            "`dmesg -T | grep -i 'killed process'` on the controller's box tells whether the kernel did it",
        ]
    elif end == "running":
        account.tries = ["fdl status shows it live"]
    if end in ("failed", "crashed", "interrupted") and files.goes_on:
        account.tries.append("go on from its last checkpoint: put --resume in front of the command (docs/resume.md)")
    return account


def afterthought(account: Account) -> Afterthought | None:
    """What a failed run's live page says beyond its verdict; None for another end."""
    first, note = account.first, account.causes.note
    if account.end != "failed" or first is None:
        return None
    return Afterthought(account.tries, first.what if note else "", note)


def end_of(files: RunFiles) -> tuple[str, str]:
    state, result = files.state, files.result
    phase, why = str(state.get("phase") or ""), str(state.get("why") or "")
    verdict = files.first("verdict")
    if phase not in ("done", "failed") and verdict:
        phase, why = str(verdict.get("phase")), str(verdict.get("text", ""))
    if phase not in ("done", "failed") and result.get("verdict") in ("done", "failed"):
        phase, why = str(result["verdict"]), str(result.get("why") or "")
    if phase == "done":
        degraded = bool(state.get("degraded") or result.get("degraded"))
        return ("degraded" if degraded else "done"), why
    if phase == "failed":
        if "interrupted by" in why or why.startswith(("KeyboardInterrupt", "interrupted")):
            return "interrupted", f"{why}: somebody ended it on purpose, nothing broke"
        return "failed", why
    if not phase:
        if files.lives is False:
            return "crashed", "its process ended before it wrote anything"
        return "unknown", "nothing in it says how it went"
    if files.lives:
        return "running", f"it still runs: {phase}" + (f", {why}" if why else "")
    if files.lives is None:
        return "unknown", f"the last it wrote is {phase!r}, and whether anybody still runs it cannot be told from here"
    # a signal that can be caught has an end of its own in the launcher; a script alone ends by it as Python does
    who, how = ("the launcher", "kill -9") if files.events else ("the process that trained", "SIGTERM, kill -9")
    return "crashed", (
        f"{who} ended without a word in phase {phase!r}: killed ({how}, out of memory), or its box went down;"
        " no verdict was written"
    )


def _voices(files: RunFiles, found: Causes, lines_of: Callable[[str], list[str]]) -> list[Voice]:
    """Every process, the culprit first, then its host's, then by rank; of a great world the first MOST_VOICES."""
    ends = {rank["rank"]: rank for rank in figures.rows(files.state.get("ranks")) if isinstance(rank.get("rank"), int)}
    exits = {str(row.get("rank")): row for row in files.events if row.get("kind") == "rank_exited"}
    first = found.first
    names = {(str(rank.get("host")), str(number)) for number, rank in ends.items()}
    known = {f"{host}-{what}" for host, what in names}
    for stem in files.log_names():
        if stem not in known:
            host, _, what = stem.rpartition("-")
            names.add((host, what))

    def culprit(host: str, what: str) -> bool:
        """The rank itself, or "relay on node-a killed by …"."""
        if first is None or first.host != host:
            return False
        return what == str(first.rank) if first.rank is not None else what in first.what

    def order(name: tuple[str, str]) -> tuple[bool, bool, int, str]:
        host, what = name
        beside = first is not None and host == first.host
        rank = _rank(what)
        return not culprit(host, what), not beside, 1 << 62 if rank is None else rank, f"{host}-{what}"

    voices = []
    for host, what in sorted(names, key=order)[:MOST_VOICES]:
        rank = _rank(what)
        lines = lines_of(f"{host}-{what}") or [str(line) for line in exits.get(what, {}).get("tail") or ()]
        if not lines and culprit(host, what) and first is not None:
            lines = first.tail
        end = ends.get(rank, {}) if rank is not None else {}
        how = " ".join(filter(None, [str(end.get("status", "")), str(end.get("why", ""))]))
        if lines or rank is not None:
            voices.append(Voice(f"{host}:{what}", how, lines[-LINES:], culprit(host, what)))
    if first is not None and first.tail and not any(voice.culprit for voice in voices):
        name = first.host or ("coordinator" if "coordinator" in first.what else "launcher")
        voices.insert(0, Voice(name, "", first.tail[-LINES:], True))
    return voices


def _rank(what: str) -> int | None:
    return int(what) if what.isascii() and what.isdecimal() else None


def _hosts(files: RunFiles) -> list[dict[str, Any]]:
    """What every host said of itself when it came in; the last word counts."""
    said = {str(row.get("host")): row for row in files.events if row.get("kind") == "hello"}
    members = {str(each.get("host")): each for each in figures.rows(files.state.get("members"))}
    rows = []
    for host in dict.fromkeys([*members, *said]):
        hello, member = said.get(host, {}), members.get(host, {})
        row = {"host": host, "ranks": member.get("ranks") or []}
        row |= {"devices": member.get("gpus") or hello.get("devices") or member.get("local_devices") or []}
        row |= {"status": member.get("status", "not in"), "why": member.get("why", ""), "road": member.get("road", "")}
        row |= {key: hello.get(key, "") for key in ("python", "torch", "libtorch", "nccl", "flodl", "cores", "address")}
        rows.append(row)
    return rows


def _differences(hosts: list[dict[str, Any]]) -> list[str]:
    """ "python: 3.11.2 on node-a; 3.10.1 on node-b"."""
    lines = []
    for key in ("python", "torch", "libtorch", "nccl", "flodl"):
        by_value: dict[str, list[str]] = {}
        for row in hosts:
            by_value.setdefault(str(row[key] or "none"), []).append(row["host"])
        if len(by_value) > 1:
            lines.append(f"{key}: " + "; ".join(f"{value} on {listed(names)}" for value, names in by_value.items()))
    return lines


def document(account: Account) -> dict[str, Any]:
    """The same for --json; additive only."""

    def finding(each: Finding) -> dict[str, Any]:
        made: dict[str, Any] = {"what": each.what, "host": each.host, "rank": each.rank, "at_s": each.at}
        return made | {"why": each.why, "meaning": each.meaning, "fix": each.fix}

    first = account.first
    return {
        "v": VERSION,
        "run": account.run,
        "path": account.path,
        "end": account.end,
        "sentence": account.sentence,
        "first": finding(first) if first is not None else None,
        "note": account.causes.note,
        "before": [finding(each) for each in account.causes.before],
        "after": [finding(each) for each in account.causes.after],
        "try": account.tries,
        "processes": [
            {"name": voice.name, "how": voice.how, "culprit": voice.culprit, "lines": voice.lines}
            for voice in account.voices
        ],
        "hosts": account.hosts,
        "versions_differ": account.differ,
        "packages": account.packages,
        "git": account.git,
        "command": account.opened.get("command", []),
        "mode": account.opened.get("mode", ""),
        "environment": account.opened.get("environment", {}),
        "broken_files": account.broken,
    }
