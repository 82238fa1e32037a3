"""What the launcher tells people: a line for every step, ranks' output and its origin, a bar while training."""

from __future__ import annotations

from flodl_window.console import Console
from flodl_wire.faults import printable
from flodl_wire.hub_messages import Progress, RankProgress

PLAIN_EVERY = 10.0  # seconds between two progress lines where there is no terminal
_BLOCKS = "▏▎▍▌▋▊▉█"


class Narration:
    """Speaks through a console; `say` is for our own lines, `output` for a process's."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_plain = 0.0

    def say(self, text: str) -> None:
        """A line of ours, on stderr. Parts of it come from afar, so it is escaped."""
        for line in printable(text).splitlines():
            self._console.line("err", f"flodl: {line}")

    def output(self, where: str, stream: str, lines: list[str]) -> None:
        """Lines of a process; stdout stays stdout, stderr stderr."""
        for line in lines:
            self._console.line(stream, f"[{where}] {line}", droppable=True)

    def progress(self, progress: Progress, now: float) -> None:
        """A bar on a terminal, else a line now and then."""
        if self._console.has_bar:
            self._console.bar(bar(progress, self._console.width))
        elif now >= self._next_plain:
            if self._next_plain:
                self.say(plain(progress))
            self._next_plain = now + PLAIN_EVERY

    def waiting(self, text: str) -> None:
        """A passing line under everything on a terminal while people wait ("" ends it)."""
        self._console.bar(printable(text)[: self._console.width - 1])

    def close(self) -> None:
        self._console.close()

    @property
    def stuck(self) -> bool:
        """True when, after `close`, a reader that stands still has kept the last lines from being written."""
        return self._console.stuck


def plain(progress: Progress) -> str:
    """One line of figures: "epoch 2/5, 61 %, 1520 samples/s, loss 0.213, balance 0.93, sync 0.04, anchor rank 1
    (node-b), ranks 0: 1100/s 1: 420/s".
    """
    parts = [f"epoch {progress.epoch + 1}/{progress.epochs}"]
    if progress.dataset:
        parts.append(f"{100 * progress.samples // progress.dataset} %")
    parts.append(f"{progress.samples_per_s:.0f} samples/s")
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    parts += together(progress)
    return ", ".join(parts) + (f", ranks {rates(progress)}" if progress.ranks else "")


def together(progress: Progress) -> list[str]:
    """How several ranks fit: "balance 0.93", "sync 0.04", "anchor rank 2 (node-b)"; of one there is nothing to say."""
    parts: list[str] = []
    if len(progress.ranks) < 2:
        return parts
    if progress.balance is not None:
        parts.append(f"balance {progress.balance:.2f}")
    if progress.sync_share is not None:
        parts.append(f"sync {progress.sync_share:.2f}")
    if progress.anchor is not None:
        parts.append(f"anchor rank {progress.anchor}" + (f" ({progress.anchor_host})" if progress.anchor_host else ""))
    return parts


def rates(progress: Progress) -> str:
    """ "0: 1100/s 1: 420/s"; a rank that stands still, or is long in its first batch, says so."""
    return " ".join(f"{rank.rank}: {_pace(rank)}" for rank in progress.ranks)


def _pace(rank: RankProgress) -> str:
    if rank.first_batch_s:
        return f"first batch, {rank.first_batch_s:.0f} s"
    return "stalled" if rank.stalled else f"{rank.samples_per_s:.0f}/s"


def bar(progress: Progress, width: int) -> str:
    """The same in one terminal line: a bar of the epoch, then as many figures as fit."""
    share = min(1.0, progress.samples / progress.dataset) if progress.dataset else 0.0
    head = f"epoch {progress.epoch + 1}/{progress.epochs} "
    tail = f" {100 * share:3.0f} % {progress.samples_per_s:.0f}/s"
    if progress.loss is not None:
        tail += f" loss {progress.loss:.4g}"
    if together(progress):
        tail += " " + ", ".join(together(progress))
    if progress.ranks:
        tail += f" │ {rates(progress)}"
    room = min(24, width - len(head) - len(tail) - 3)
    if room >= 6:
        eighths = round(share * room * 8)
        full, part = divmod(eighths, 8)
        blocks = _BLOCKS[-1] * full + (_BLOCKS[part - 1] if part else "")
        head += f"▕{blocks.ljust(room)}▏"
    return (head + tail)[: width - 1]
