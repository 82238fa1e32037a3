"""A run's curves as TensorBoard reads them, by TensorBoard's own writer (the extra ``[tensorboard]``; no torch in it).

Written when asked, from the document of the curves: its times are the window's, so the wall times in the file are of
one clock, whatever the hosts' said.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

from flodl_window.aftermath.figures import number
from flodl_window.aftermath.run_files import Json
from flodl_wire.faults import Broken, Refused

NAME = "tensorboard"  # the folder below the run's
EXTRA = "pip install 'flodl-window[tensorboard]'"

Scalar = tuple[float, int, str, float]  # s since the window opened, step, tag, value


def scalars(drawn: Json) -> list[Scalar]:
    """Every figure of the document (figures.py) in the order of time. Epochs count in epochs, the rest in seconds."""
    found: list[Scalar] = []

    def column(times: Any, steps: Any, tag: str, values: Any) -> None:
        if not all(isinstance(each, list) for each in (times, steps, values)):
            return
        for at, step, value in zip(times, steps, values, strict=False):
            if None not in (t := number(at), s := number(step), v := number(value)):
                found.append((t, int(s), tag, v))  # type: ignore[arg-type]

    totals, ranks, epochs = drawn["totals"], drawn["ranks"], drawn["epochs"]
    times = totals.get("t")
    for key in ("samples_per_s", "balance", "sync_share"):
        column(times, times, f"run/{key}", totals.get(key))
    for rank, values in ranks["rate"].items():
        column(ranks.get("t"), ranks.get("t"), f"samples_per_s/rank {rank}", values)
    for key in ("loss", "wall_s"):
        column(epochs.get("t"), epochs.get("epoch"), f"epoch/{key}", epochs.get(key))
    for name, values in epochs["eval"].items():
        column(epochs.get("t"), epochs.get("epoch"), f"eval/{name}", values)
    return sorted(found)


def write(drawn: Json, folder: Path) -> int:
    """Write the event file to a new `folder` in place of an old one; how many figures stand in it. Raises Refused
    without the extra, Broken where it cannot be written.
    """
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError as err:
        raise Refused(
            "no-extra", "cannot write TensorBoard's files", f"its writer is not installed ({err})", EXTRA
        ) from None
    opened = number(drawn.get("opened_at")) or 0.0
    rows = scalars(drawn)
    new = folder.with_name(f".{folder.name}.new")
    try:
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(parents=True)
        writer = EventFileWriter(str(new))
        for at, step, tag, value in rows:
            summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
            writer.add_event(Event(wall_time=opened + at, step=step, summary=summary))
        writer.close()
        if folder.exists():
            shutil.rmtree(folder)
        new.rename(folder)
    except OSError as err:
        with contextlib.suppress(OSError):
            shutil.rmtree(new)
        raise Broken("no-tensorboard", f"cannot write {folder}", err.strerror or str(err)) from None
    return len(rows)
