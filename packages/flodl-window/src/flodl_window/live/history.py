"""What is remembered of a run for those who watch it: pure, bounded, never asked to decide anything.

`note_…` takes news in as it comes, in seconds since the window opened. `take` answers what is new since it was last
asked, for the pages that are open; `document` is the whole, for late comers, for /history.json and for the report.

Bytes: the ranks' rates and the hosts' loads each have CELLS figures at most, whatever the size of the world; the
timeline SPENT_CELLS; tails, marks and epochs are bounded by number. All together stays below MOST_BYTES.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from flodl_window.live.table import Table
from flodl_window.live.tails import Tails, harmless
from flodl_wire.hub_messages import EpochDone, Progress, Timeline
from flodl_wire.join_messages import HostLoad

VERSION = 1
ROWS = 720  # of a table at most: about a figure per pixel of a chart
CELLS = 60_000
SPENT_CELLS = 30_000
TIMELINE_ROWS = 160
EPOCHS = 1000
METRICS = 24  # names an evaluation may have
MARKS = 200
NEW_MARKS = 50  # in one piece of news
MOST_GPUS = 16  # of a host, in the charts
HOSTS = 2048
MOST_BYTES = 12 << 20  # of the document as JSON, and of what it is made of

LOADS = ("cpu", "memory", "rx", "tx")


class History:
    """One run. `opened_at`: seconds since 1970 when the window opened."""

    def __init__(self, run: str, mode: str, opened_at: float) -> None:
        self.run, self.mode, self.opened_at = run, mode, opened_at
        self.totals = Table(ROWS)
        self.rates = Table(ROWS, CELLS // 32)
        self.epochs = Table(EPOCHS, METRICS + 4)
        self.hosts: dict[str, Table] = {}
        self.facts: dict[str, dict[str, Any]] = {}  # of hosts: memory, GPUs' memory, how far its clock is off
        self.tails = Tails()
        self.marks: deque[tuple[float, str, str]] = deque(maxlen=MARKS)
        self._timeline: deque[dict[str, Any]] = deque(maxlen=TIMELINE_ROWS)
        self._training_since: float | None = None
        self._row_at = 0.0
        self._news: dict[str, Any] = {}

    # what comes in

    def note_mark(self, now: float, kind: str, text: str) -> None:
        """Something worth a line: a phase, a loss, a notice."""
        mark = (round(now, 3), kind, harmless(text))
        self.marks.append(mark)
        self._news.setdefault("marks", []).append(mark)
        del self._news["marks"][:-NEW_MARKS]

    def note_began(self, now: float) -> None:
        """Training has begun: the hub's own time counts from here."""
        self._training_since = self._row_at = now

    def note_progress(self, now: float, progress: Progress) -> None:
        totals = {
            "samples_per_s": progress.samples_per_s if progress.rounds else None,  # nothing is merged yet
            "loss": progress.loss,
            "balance": progress.balance,
            "sync_share": progress.sync_share,
        }
        rates = {str(rank.rank): rank.samples_per_s or None for rank in progress.ranks}
        self.totals.add(now, totals)
        self.rates.fit(CELLS // max(1, len(rates)))
        self.rates.add(now, rates)
        self._news["progress"] = {"t": round(now, 3), "totals": totals, "rates": rates}

    def note_timeline(self, now: float, timeline: Timeline) -> None:
        """A row of how the ranks spent their time; `t` is its end."""
        t = timeline.t + self._training_since if self._training_since is not None else now
        rows = [
            [each.rank, each.busy_s, each.waiting_s, each.averaging_s, each.batches, each.samples]
            for each in timeline.spent
        ]
        row = {"t": round(t, 3), "dt": round(max(0.0, t - self._row_at), 3), "rows": rows}
        self._row_at = t
        kept = max(16, min(TIMELINE_ROWS, SPENT_CELLS // (6 * max(1, len(rows)))))
        self._timeline.append(row)
        while len(self._timeline) > kept:
            self._timeline.popleft()
        self._news.setdefault("timeline", []).append(row)
        del self._news["timeline"][:-8]

    def note_epoch(self, now: float, done: EpochDone) -> None:
        metrics = {harmless(name, 80): value for name, value in list(done.eval.items())[:METRICS]}
        row: dict[str, float | None] = {
            "epoch": float(done.epoch),
            "loss": done.loss,
            "wall_s": done.wall_s,
            "samples": float(done.samples),
            **{f"eval:{name}": value for name, value in metrics.items()},
        }
        self.epochs.add(now, row)
        new = {"t": round(now, 3), "epoch": done.epoch, "loss": done.loss, "wall_s": done.wall_s}
        self._news.setdefault("epochs", []).append({**new, "samples": done.samples, "eval": metrics})
        del self._news["epochs"][:-64]

    def note_load(self, now: float, host: str, load: HostLoad, labels: dict[int, str]) -> None:
        """`labels`: of the host's GPUs, by index."""
        host = harmless(host, 255)
        table = self.hosts.get(host)
        if table is None:
            if len(self.hosts) >= HOSTS:
                return
            table = self.hosts[host] = Table(ROWS, len(LOADS) + 2 * MOST_GPUS)
        gpus = load.gpus[:MOST_GPUS]
        row: dict[str, float | None] = {
            "cpu": min(1.0, max(0.0, load.cpu)),
            "memory": load.memory_used / load.memory_total if load.memory_total > 0 else None,
            "rx": load.rx_per_s,
            "tx": load.tx_per_s,
        }
        for gpu in gpus:
            row[f"gpu{gpu.index}"] = gpu.busy
            row[f"gpu{gpu.index}_memory"] = (
                gpu.memory_used / gpu.memory_total if gpu.memory_total and gpu.memory_used is not None else None
            )
        table.add(now, row)
        cells = CELLS // max(1, len(self.hosts)) // len(row)
        for each in self.hosts.values() if len(table) == 1 else (table,):
            each.fit(cells)
        facts = {
            "memory_total": load.memory_total,
            "clock_off_s": round(load.clock - (self.opened_at + now), 3),
            "gpus": {str(gpu.index): harmless(labels.get(gpu.index, ""), 120) for gpu in gpus},
        }
        self.facts[host] = facts
        self._news.setdefault("hosts", {})[host] = {"t": round(now, 3), **row, "facts": facts}

    def note_lines(self, source: str, lines: list[str]) -> None:
        """What a process printed; `source` is "host:rank" or "host:relay"."""
        self.tails.add(harmless(source, 300), lines)

    # what goes out

    def take(self, now: float) -> dict[str, Any]:
        """What is new since the last call; empty when nothing is."""
        news, self._news = self._news, {}
        if lines := self.tails.take():
            news["tails"] = lines
        return {"now": round(now, 3), **news} if news else {}

    def document(self, now: float) -> dict[str, Any]:
        """Everything, as JSON values."""
        epochs = self.epochs.document()
        evals = {name[5:]: epochs.pop(name) for name in list(epochs) if name.startswith("eval:")}
        rates = self.rates.document()
        return {
            "v": VERSION,
            "run": self.run,
            "mode": self.mode,
            "opened_at": round(self.opened_at, 3),
            "now": round(now, 3),
            "totals": self.totals.document(),
            "ranks": {"t": rates.pop("t"), "rate": rates},
            "epochs": {**epochs, "eval": evals},
            "timeline": list(self._timeline),
            "hosts": {host: {**table.document(), "facts": self.facts[host]} for host, table in self.hosts.items()},
            "tails": self.tails.document(),
            "marks": list(self.marks),
        }
