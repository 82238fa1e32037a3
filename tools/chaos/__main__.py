"""``python -m tools.chaos [--runs N] [--seed N] [--only N] [--mode MODE] [--victim WHO]``: plays, one line each, and a
table. Exit 1 when one was not as it must be.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.chaos import box, hosts
from tools.chaos.deeds import MODES, Deed, draw
from tools.lab import missing


@dataclass
class Played:
    deed: Deed
    took: float
    wrong: list[str]


def play(deed: Deed, off: float, place: Path) -> Played:
    """`off`: how far off an undisturbed run of its mode ends. What a good play has written is removed."""
    began = time.perf_counter()
    wrong = hosts.play(deed, off, place) if deed.kind == "cut" else box.Box(place, deed.mode).play(deed, off)
    if not wrong:
        shutil.rmtree(place, ignore_errors=True)
    return Played(deed, time.perf_counter() - began, wrong)


def plays(deeds: list[Deed], folder: Path) -> Iterator[Played]:
    """One after the other."""
    off = box.Undisturbed(folder / "undisturbed")
    for deed in deeds:
        if deed.kind != "disk" or box.can_mount():
            yield play(deed, off(deed.mode), folder / str(deed.number))


def table(played: list[Played]) -> str:
    """What happened how often, and how often it went wrong; the same by mode."""
    lines = [f"{'':25} {'runs':>5} {'wrong':>6} {'mean s':>7}"]
    names: list[Callable[[Deed], str]] = [
        lambda deed: f"{deed.kind:6} {deed.victim}",
        lambda deed: deed.mode,
        lambda deed: "all",
    ]
    for named in names:
        rows: dict[str, list[Played]] = defaultdict(list)
        for each in played:
            rows[named(each.deed)].append(each)
        for name, group in sorted(rows.items()):
            mean = sum(each.took for each in group) / len(group)
            bad = sum(bool(each.wrong) for each in group)
            lines.append(f"{name:25} {len(group):5} {bad:6} {mean:7.1f}")
    return "\n".join(lines)


def _wanted(deed: Deed, given: argparse.Namespace) -> bool:
    return given.mode in (None, deed.mode) and given.victim in (None, deed.victim)


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m tools.chaos", description=__doc__)
    p.add_argument("--runs", type=int, default=200)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", type=int, metavar="N", help="repeat play N of the seed")
    p.add_argument("--mode", choices=sorted(set(MODES)), help="of the plays only those in this mode")
    p.add_argument("--victim", help="of the plays only those of this victim")
    given = p.parse_args(argv)
    folder = Path(tempfile.mkdtemp(prefix="flodl-chaos-"))
    numbers = [given.only] if given.only is not None else list(range(given.runs))
    deeds = [draw(given.seed, number, lab=missing() is None) for number in numbers]
    played: list[Played] = []
    for each in plays([deed for deed in deeds if _wanted(deed, given)], folder):
        played.append(each)
        said = "; ".join(each.wrong) or "as it must be"
        print(f"{each.deed.number:4} {each.deed!s:50} {each.took:5.1f} s  {said}", flush=True)
    print(table(played))
    if any(each.wrong for each in played):
        print(f"what they left is in {folder}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
