"""What the project has run, a line each: pure, from each run's folder as read. `fdl runs` prints it."""

from __future__ import annotations

import shlex
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from flodl_window.aftermath.account import end_of
from flodl_window.aftermath.run_files import Json, RunFiles
from flodl_wire.faults import printable

VERSION = 1
LEAST = 8  # columns that a cell may be cut to


@dataclass
class Listed:
    """One run. Numbers are None, texts empty, where the run never got so far; `began` is seconds since 1970."""

    run: str
    path: str
    end: str
    began: float | None
    name: str  # the command's name in fdl.yml
    command: list[str]
    mode: str
    ranks: int | None
    wall_s: float | None
    samples: int | None
    samples_per_s: float | None
    epochs: int | None
    loss: float | None
    metrics: dict[str, float] = field(default_factory=dict)
    why: str = ""


def of(files: RunFiles) -> Listed:
    """A folder's line, whatever is missing in it."""
    opened, result, state = files.first("opened"), files.result, files.state
    epochs = [epoch for epoch in result.get("epochs") or () if isinstance(epoch, dict)] if _is_list(result) else []
    last = epochs[-1] if epochs else {}
    evaluated: Json = next((epoch["eval"] for epoch in reversed(epochs) if isinstance(epoch.get("eval"), dict)), {})
    end, why = end_of(files)
    command = opened.get("command")
    return Listed(
        run=files.run,
        path=str(files.path),
        end=end,
        began=_number(opened.get("at")) or _from_id(files.run),
        name=str(opened.get("name") or ""),
        command=[str(word) for word in command] if isinstance(command, list) else [],
        mode=str(result.get("mode") or state.get("mode") or opened.get("mode") or ""),
        ranks=_whole(result.get("world_size")) or _whole(state.get("joined_ranks")),
        wall_s=_number(result.get("wall_s")),
        samples=_whole(result.get("samples")),
        samples_per_s=_number(result.get("samples_per_s")),
        epochs=len(epochs) or None,
        loss=_number(last.get("loss")),
        metrics={str(name): float(value) for name, value in evaluated.items() if _number(value) is not None},
        why=why if end not in ("done",) else "",
    )


def document(rows: list[Listed]) -> Json:
    """For --json: newest first; additive only."""
    return {"v": VERSION, "runs": [asdict(row) for row in rows]}


_HEADS = ("run", "began", "how", "mode", "ranks", "wall", "samples/s", "result", "command")
_RIGHT = ("ranks", "wall", "samples/s")
_DROPPED = ("command", "mode", "began", "ranks", "samples/s", "wall")  # the first to go where there is little room


def render(rows: list[Listed], width: int | None) -> str:
    """A table. `width`: of the terminal, None where nothing needs to be cut."""
    if not rows:
        return "no runs here yet\n"
    cells = [_cells(row) for row in rows]
    heads = [head for head in _HEADS if any(cell[head] for cell in cells)]
    for dropped in _DROPPED:
        if width is None or _needed(heads, cells, least=LEAST) <= width:
            break
        heads = [head for head in heads if head != dropped]
    widths = {head: max(len(head), *(len(cell[head]) for cell in cells)) for head in heads}
    for head in ("command", "result", "run"):  # cut the longest texts first
        over = _needed(heads, cells) - width if width is not None else 0
        if over > 0 and head in widths:
            widths[head] = max(LEAST, widths[head] - over)
            for cell in cells:
                cell[head] = _cut(cell[head], widths[head])
    lines = []
    for cell in [dict(zip(_HEADS, _HEADS, strict=True)), *cells]:
        row = (cell[head].rjust(widths[head]) if head in _RIGHT else cell[head].ljust(widths[head]) for head in heads)
        lines.append("  ".join(row).rstrip())
    return "\n".join(lines) + "\n"


def _needed(heads: list[str], cells: list[dict[str, str]], least: int | None = None) -> int:
    """Columns that the table takes; with `least` what it could be cut to."""
    total = 2 * (len(heads) - 1)
    for head in heads:
        size = max(len(head), *(len(cell[head]) for cell in cells))
        total += min(size, least) if least is not None and head in ("command", "result") else size
    return total


def _cells(row: Listed) -> dict[str, str]:
    result = [f"{name} {value:.4g}" for name, value in row.metrics.items()]
    if row.loss is not None:
        result.insert(0, f"loss {row.loss:.4g}")
    shown = ", ".join(result) if row.end in ("done", "degraded") and result else row.why or ", ".join(result)
    made = {
        "run": row.run,
        "began": time.strftime("%d %b %H:%M", time.localtime(row.began)) if row.began else "",
        "how": row.end,
        "mode": row.mode,
        "ranks": str(row.ranks) if row.ranks else "",
        "wall": span(row.wall_s) if row.wall_s else "",
        "samples/s": f"{row.samples_per_s:,.0f}" if row.samples_per_s else "",
        "result": shown,
        "command": row.name or shlex.join(row.command),
    }
    return {name: printable(text.replace("\n", " ").replace("\t", " ")) for name, text in made.items()}


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def span(seconds: float) -> str:
    """ "12.3 s", "4:05", "2:03:00"."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _from_id(run: str) -> float | None:
    try:
        return time.mktime(time.strptime(run[:15], "%Y%m%d-%H%M%S"))
    except (ValueError, OverflowError):
        return None


def _is_list(result: Json) -> bool:
    return isinstance(result.get("epochs"), list)


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
