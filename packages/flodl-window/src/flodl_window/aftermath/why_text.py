"""The account for people: the first cause on the first line, what helps right under it, the evidence behind. Pure."""

from __future__ import annotations

import re
import shlex

from flodl_window.aftermath.account import Account, Voice
from flodl_window.aftermath.causes import Finding
from flodl_window.words import listed
from flodl_wire.faults import printable

HEADS = {
    "done": "It did not fail",
    "degraded": "It did not fail, but lost ranks on the way",
    "failed": "FAILED",
    "interrupted": "INTERRUPTED",
    "crashed": "CRASHED",
    "running": "It has not ended",
    "unknown": "Not known",
}
FOLLOWED = 8
_COLOUR = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|\r")


def render(account: Account) -> str:
    """The whole text, ends with a line end. Escaped: most of it comes from afar."""
    out = [f"run {account.run}: {HEADS[account.end]}: {account.sentence}".rstrip(": "), ""]
    first = account.first
    if account.end == "failed" and first is not None:
        out += ["What broke first:", *_finding(first, account), ""]
        if account.causes.note:
            out += [f"  ({account.causes.note})", ""]
    if account.tries:
        out += ["What to try:", *(f"  - {line}" for line in account.tries), ""]
    if account.causes.before:
        out += ["Before it, and survived:", *(f"  {_line(each)}" for each in account.causes.before[-FOLLOWED:]), ""]
    if account.causes.after and account.end == "failed":
        followed = account.causes.after
        out += ["What followed from it:", *(f"  {_line(each)}" for each in followed[:FOLLOWED])]
        out += [f"  and {len(followed) - FOLLOWED} more"] if len(followed) > FOLLOWED else []
        out.append("")
    if account.end not in ("done", "running"):
        for voice in account.voices:
            if voice.lines or account.opened:  # what a script alone said is in no log
                out += _voice(voice)
    out += _setting(account)
    return printable("\n".join(out).rstrip() + "\n")


def _finding(first: Finding, account: Account) -> list[str]:
    lines = [f"  {_calm(first.what, 500)}"]
    if first.why:
        lines.append(f"  why: {_calm(first.why, 1000)}")
    if first.meaning:
        lines.append(f"  {first.meaning}")
    device = next(
        (
            f"{row['host']}: {listed(row['devices'])}"
            for row in account.hosts
            if first.host and row["host"] == first.host and row["devices"]
        ),
        "",
    )
    if device:
        lines.append(f"  on {_calm(device, 300)}")
    if first.at:
        lines.append(f"  {first.at:.1f} s after the window opened (its own clock; hosts' clocks play no part)")
    return lines


def _line(each: Finding) -> str:
    return f"{each.at:8.1f} s  {_calm(f'{each.what}: {each.why}' if each.why else each.what, 300)}"


def _voice(voice: Voice) -> list[str]:
    head = f"--- {voice.name}" + (f", {voice.how}" if voice.how else "") + (" (the culprit)" if voice.culprit else "")
    if not voice.lines:
        return [f"{_calm(head, 300)}: said nothing", ""]
    return [_calm(head, 300), *(f"| {_calm(line, 2000)}" for line in voice.lines), ""]


def _setting(account: Account) -> list[str]:
    """Versions, environment, code: what a helper would ask for next."""
    opened, lines = account.opened, []
    if command := opened.get("command"):
        lines.append(f"  command: {shlex.join(map(str, command))}")
    if account.git:
        changed = f", {len(account.git.get('changed') or [])} files changed" if account.git.get("dirty") else ", clean"
        lines.append(f"  code: {account.git.get('branch', '')} {str(account.git.get('commit', ''))[:12]}{changed}")
    if opened.get("mode"):
        lines.append(f"  mode: {opened['mode']}")
    for row in account.hosts:
        facts = [f"{key} {row[key]}" for key in ("python", "torch", "nccl", "flodl") if row.get(key)]
        facts += [f"{row['cores']} cores"] if row.get("cores") else []
        lines.append(f"  {row['host']}: {', '.join([listed(row['devices']), *facts])}")
    lines += [f"  NOT THE SAME EVERYWHERE: {line}" for line in account.differ]
    for name, value in (opened.get("environment") or {}).items():
        lines.append(f"  {name}={value}")
    if account.broken:
        lines.append(f"  could not be read: {', '.join(account.broken)}")
    lines.append(f"  files: {account.path}/")
    return ["On what:", *(_calm(line, 1000) for line in lines)]


def _calm(text: str, most: int) -> str:
    """`text` without colours, cut; `printable` does the rest."""
    text = _COLOUR.sub("", text)
    return text if len(text) <= most else text[: most - 1] + "…"
