"""``status`` for people. Works on the plain JSON, tolerates fields that are missing or new, and escapes what comes
from afar.
"""

from __future__ import annotations

from flodl_wire.faults import printable

TYPE_CHECKING = False  # typing's own constant, without its import: status is hot
if TYPE_CHECKING:
    from typing import Any


MOST_REFUSED = 8  # on one screen


def render(state: dict[str, Any], where: str) -> str:
    """The state as lines: header, why, ranks and rates, countdowns, roster, who is missing, who was refused."""
    lines = [f"cluster run @ {where} — {state.get('phase', '?')}" + ("  DEGRADED" if state.get("degraded") else "")]
    if state.get("why"):
        lines.append(f"  {state['why']}")
    cause = state.get("cause") or {}
    if cause.get("what") and cause["what"] != state.get("why"):
        lines.append(f"  first cause: {cause['what']}")
    lines.append(f"  run {state.get('run', '?')}, mode {state.get('mode', '?')}")
    lines += _ranks(state)
    lines += _window(state)
    lines += _progress(state.get("progress"))
    lines += _roster(state)
    lines += [f"  {host}  MISSING: the roster names it" for host in state.get("missing") or []]
    lines += _refused(state)
    return printable("\n".join(lines))


def _ranks(state: dict[str, Any]) -> list[str]:
    joined, hosts = state.get("joined_ranks", 0), state.get("joined_hosts", 0)
    text = f"  ranks: {joined} on {hosts} host{'' if hosts == 1 else 's'}"
    if state.get("phase") in ("waiting", "staging"):
        text += f" (quorum {state.get('min_rank_start')}"
        text += f", target {state['target_ranks']})" if state.get("target_ranks") is not None else ")"
    tally: dict[str, int] = {}
    for rank in state.get("ranks") or []:
        tally[rank.get("status", "?")] = tally.get(rank.get("status", "?"), 0) + 1
    if tally:
        text += ": " + ", ".join(f"{number} {status}" for status, number in tally.items())
    return [text]


def _window(state: dict[str, Any]) -> list[str]:
    if state.get("phase") not in ("waiting", "staging"):
        return []
    lines = [f"  window: {_left(state.get('window_remaining_secs'))}, cap: {_left(state.get('cap_remaining_secs'))}"]
    if state.get("start_mode", "auto") != "auto":
        if state.get("start_armed"):
            lines.append("  start: armed")
        elif state.get("phase") == "staging":
            lines.append("  start: roster startable, fire with `fdl start`")
        else:
            lines.append("  start: waiting for quorum")
    return lines


def _left(seconds: Any) -> str:
    if not isinstance(seconds, (int, float)):
        return "?"
    return f"{seconds:.0f}s left" if seconds > 0 else "expired"


def _progress(progress: Any) -> list[str]:
    if not isinstance(progress, dict):
        return []
    parts = [f"epoch {progress.get('epoch', 0) + 1}/{progress.get('epochs', '?')}"]
    if progress.get("dataset"):
        parts.append(f"{progress.get('samples', 0)}/{progress['dataset']} samples")
    parts.append(f"{progress.get('samples_per_s', 0):.0f} samples/s")
    for key, name in (("loss", "loss"), ("balance", "balance")):
        if isinstance(progress.get(key), (int, float)):
            parts.append(f"{name} {progress[key]:.4g}")
    return ["  " + ", ".join(parts)]


def _roster(state: dict[str, Any]) -> list[str]:
    rates = {rank.get("rank"): rank for rank in (state.get("progress") or {}).get("ranks") or []}
    lives: dict[str, list[dict[str, Any]]] = {}
    for rank in state.get("ranks") or []:
        lives.setdefault(str(rank.get("host")), []).append(rank)
    lines = []
    for member in state.get("members") or []:
        host = str(member.get("host"))
        road = _road(member)
        text = f"  {host}  ranks {_spans(member.get('ranks') or [])}  {_grouped(member.get('gpus') or [])}"
        if member.get("libtorch"):
            text += f"  {member['libtorch']}"
        text += f"  joined +{member.get('joined_at_secs', 0):.0f}s" + (f"  ({road})" if road else "")
        text += "  walk-in" if member.get("walk_in") else ""
        if member.get("status", "in") not in ("in", "running"):
            text += f"  {member['status']}" + (f": {member['why']}" if member.get("why") else "")
        lines.append(text)
        for rank in lives.get(host, []):
            rate = rates.get(rank.get("rank"))
            figure = f"  {rate.get('samples_per_s', 0):.0f} samples/s" if rate else ""
            why = f" ({rank['why']})" if rank.get("why") else ""
            lines.append(f"    rank {rank.get('rank')}  {rank.get('device')}  {rank.get('status')}{why}{figure}")
    return lines


def _road(member: dict[str, Any]) -> str:
    """ "ssh 10.0.0.2", "direct 10.0.0.2, itself 172.17.0.3, to 10.0.0.1:1337": how it came and what both ends call
    it.
    """
    parts = [" ".join(str(member[key]) for key in ("road", "address") if member.get(key))]
    if member.get("own_address") and member["own_address"] != member.get("address"):
        parts.append(f"itself {member['own_address']}")
    if member.get("dialled"):
        parts.append(f"to {member['dialled']}")
    return ", ".join(part for part in parts if part)


def _refused(state: dict[str, Any]) -> list[str]:
    refused = state.get("refused") or []
    lines = ["  refused:"] if refused else []
    for one in refused[-MOST_REFUSED:]:
        who = one.get("host") or "somebody"
        times = f", {one['times']} times" if one.get("times", 1) > 1 else ""
        when = f"+{one.get('at_secs', 0):.0f}s{times}"
        lines.append(f"    {who} from {one.get('address', '?')} ({when}): {one.get('why')}")
        if one.get("fix"):
            lines.append(f"      fix: {one['fix']}")
    if len(refused) > MOST_REFUSED:
        lines.append(f"    and {len(refused) - MOST_REFUSED} more: --json has them all")
    return lines


def _spans(ranks: list[Any]) -> str:
    if len(ranks) > 1 and ranks == list(range(ranks[0], ranks[0] + len(ranks))):
        return f"{ranks[0]}-{ranks[-1]}"
    return ",".join(map(str, ranks))


def _grouped(labels: list[Any]) -> str:
    """ "2x NVIDIA H200"."""
    tally: dict[str, int] = {}
    for label in labels:
        tally[str(label)] = tally.get(str(label), 0) + 1
    return ", ".join(f"{number}x {label}" for label, number in tally.items())
