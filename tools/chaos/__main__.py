"""``python -m tools.chaos [--runs N] [--seed N] [--only N]``: plays, one line each, and a table. Exit 1 when one was
not as it must be.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.chaos import box, hosts
from tools.chaos.deeds import Deed, draw
from tools.lab import missing


@dataclass
class Played:
    deed: Deed
    took: float
    wrong: list[str]


def play(deed: Deed, off: float, place: Path) -> Played:
    """`off`: how far off an undisturbed run ends. What a good play has written is removed."""
    began = time.perf_counter()
    wrong = hosts.play(deed, off, place / "record") if deed.kind == "cut" else box.Box(place).play(deed, off)
    if not wrong:
        shutil.rmtree(place, ignore_errors=True)
    return Played(deed, time.perf_counter() - began, wrong)


def plays(seed: int, numbers: list[int], folder: Path, victim: str | None = None) -> Iterator[Played]:
    """One after the other; only those of `victim`, if one is named."""
    off = box.undisturbed(folder / "undisturbed")
    for number in numbers:
        deed = draw(seed, number, lab=missing() is None)
        if victim and deed.victim != victim:
            continue
        if deed.kind != "disk" or box.can_mount():
            yield play(deed, off, folder / str(number))


def table(played: list[Played]) -> str:
    """What happened how often, and how often it went wrong."""
    rows: dict[tuple[str, str], list[Played]] = defaultdict(list)
    for each in played:
        rows[each.deed.kind, each.deed.victim].append(each)
    lines = [f"{'deed':6} {'victim':12} {'runs':>5} {'wrong':>6} {'mean s':>7}"]
    for (kind, victim), group in sorted(rows.items()):
        mean = sum(each.took for each in group) / len(group)
        bad = sum(bool(each.wrong) for each in group)
        lines.append(f"{kind:6} {victim:12} {len(group):5} {bad:6} {mean:7.1f}")
    bad = sum(bool(each.wrong) for each in played)
    mean = sum(each.took for each in played) / max(1, len(played))
    lines.append(f"{'':6} {'all':12} {len(played):5} {bad:6} {mean:7.1f}")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    p.add_argument("--runs", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int, metavar="N", help="repeat play N of the seed")
    p.add_argument("--victim", help="of the plays only those of this victim")
    given = p.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="flodl-chaos-"))
    numbers = [given.only] if given.only is not None else list(range(given.runs))
    played: list[Played] = []
    for each in plays(given.seed, numbers, folder, given.victim):
        played.append(each)
        said = "; ".join(each.wrong) or "as it must be"
        print(f"{each.deed.number:4} {each.deed!s:35} {each.took:5.1f} s  {said}", flush=True)
    print(table(played))
    if any(each.wrong for each in played):
        print(f"what they left is in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
