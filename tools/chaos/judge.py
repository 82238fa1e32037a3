"""Was it as it must be? Each answer is a sentence about what was not; none is good."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tools.chaos.deeds import Expected

Positions = set[tuple[int, int]]  # (epoch, position in its order)
NOISE = 0.25  # of an undisturbed run's distance from the truth: orders and shares differ from run to run


def verdict(expected: Expected, code: int, state: Any, said: str) -> list[str]:
    """`code`: of the launcher; `state`: the last state.json, which a full disk may have kept old; `said`: its lines."""
    found = "killed" if code < 0 else "failed" if code else "done"
    if found not in expected.verdicts:
        return [f"the verdict is {found} ({state.why}), and not {' or '.join(expected.verdicts)}"]
    cause = f"{state.cause.what} {state.cause.host} {state.why}" if state.cause else said
    if found == "failed" and expected.words and not any(word in cause for word in expected.words):
        return [f"the first cause names none of {', '.join(expected.words)}: {cause}"]
    return []


def account(expected: Expected, code: int, state: Any, told: dict[str, Any]) -> list[str]:
    """`told`: what `fdl why --json` says of it. It must name the end, and for a failure the same first cause."""
    left = "done" if code == 0 or state.phase == "done" else "failed" if code > 0 else "crashed"
    end = "degraded" if left == "done" and state.degraded else left
    if told["end"] != end:
        return [f"fdl why says {told['end']}, and not {end}: {told['sentence']}"]
    first = told["first"] or {}
    cause = f"{first.get('what')} {first.get('host')} {first.get('why')}"
    wrong = []
    if code > 0 and expected.words and not any(word in cause for word in expected.words):
        wrong.append(f"the first cause of fdl why names none of {', '.join(expected.words)}: {cause}")
    if code > 0 and not told["try"]:
        wrong.append("fdl why has nothing to try")
    if end == "degraded" and not told["before"]:
        wrong.append("fdl why names nothing that was lost")
    return wrong


def told(expected: Expected, code: int, state: Any) -> list[str]:
    """A victim that was stopped in a run that is done: its last line says what became of it."""
    if code != 0 or not expected.told or any(words in state.why for words in expected.told):
        return []
    return [f"the verdict says nothing of who was stopped: {state.why}"]


def merged(
    folders: Sequence[Path], records: Sequence[Path], result: dict[str, Any] | None, count: int, samples: int
) -> list[str]:
    """Over a run and, where it failed, the one behind it: every sample of every epoch once. `records`: what each run's
    ranks have delivered.
    """
    first = folders[0]
    if len(folders) == 1 or began_anew(first, count):
        return epochs(folders[-1:], result, count, samples) + delivered(records[-1], everything(count, samples))
    stood = positions(first)
    wrong = delivered(records[0], stood) + delivered(records[1], everything(count, samples) - stood)
    return epochs(folders, result, count, samples) + wrong


def began_anew(folder: Path, count: int) -> bool:
    """What is behind this run has nothing from it: it left no checkpoint, so short was it; or a finished one, and only
    its launcher had not yet said so.
    """
    return not (folder / "checkpoint.safetensors").exists() or settled_epochs(folder) == count


def epochs(folders: Sequence[Path], result: dict[str, Any] | None, count: int, samples: int) -> list[str]:
    """Over the runs one after the other: each epoch once, and in it each sample merged exactly once. `result`: for rows
    that a full disk did not take.
    """
    done: dict[int, list[Any]] = {}
    for folder in folders:
        settled = settled_epochs(folder) if folder is not folders[-1] else count
        for row in _rows(folder / "metrics.jsonl"):
            if row["kind"] == "epoch" and row["epoch"] < settled:  # the rest was done, or told, by the run behind it
                done.setdefault(row["epoch"], []).append(row["merged"])
    for epoch in (result or {}).get("epochs", []) if result else []:
        done.setdefault(epoch["epoch"], [[[0, epoch["samples"]]]])
    times = {epoch: len(done.get(epoch, [])) for epoch in range(count)}
    wrong = [f"epoch {epoch} was done {number} times" for epoch, number in times.items() if number != 1]
    return wrong + [f"epoch {epoch} merged {got[0]}" for epoch, got in done.items() if got[0] != [[0, samples]]]


def settled_epochs(folder: Path) -> int:
    """How many epochs were whole and evaluated in the run's last checkpoint; 0 without one."""
    return sum(1 for epoch in cursor(folder).get("history", []) if epoch.get("eval"))


def positions(folder: Path) -> Positions:
    """What stands in the run's last checkpoint."""
    stood = cursor(folder)
    if not stood:
        return set()
    epoch = stood["epoch"]
    return everything(epoch, stood["dataset"]) | set(_unrolled(epoch, stood.get("merged", [])))


def everything(epochs: int, samples: int) -> Positions:
    return {(epoch, at) for epoch in range(epochs) for at in range(samples)}


def _unrolled(epoch: int, spans: list[list[int]]) -> list[tuple[int, int]]:
    return [(epoch, at) for start, size in spans for at in range(start, start + size)]


def cursor(folder: Path) -> dict[str, Any]:
    """Where the run stood in its last checkpoint; empty without one."""
    path = folder / "checkpoint.safetensors"
    if not path.exists():
        return {}
    with path.open("rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    found: dict[str, Any] = json.loads(header["__metadata__"]["flodl"])
    return found


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text().splitlines() if path.exists() else []
    rows = []
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue  # torn by a full disk
    return rows


def delivered(record: Path, wanted: Positions) -> list[str]:
    """By the ranks' own words: nothing of it was delivered by nobody."""
    missing: dict[int, int] = {}
    for epoch, _ in wanted.difference(deliveries(record)):
        missing[epoch] = missing.get(epoch, 0) + 1
    return [f"{number} samples of epoch {epoch} were delivered by nobody" for epoch, number in sorted(missing.items())]


def deliveries(record: Path) -> list[tuple[int, int]]:
    """Each position as often as a rank has handed it in."""
    return [position for epoch, spans in _handed_in(record) for position in _unrolled(epoch, spans)]


def delivered_samples(record: Path) -> int:
    return sum(size for _, spans in _handed_in(record) for _, size in spans)


def _handed_in(record: Path) -> Iterator[tuple[int, list[list[int]]]]:
    for path in record.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            if line.endswith(("]]]", "[]]")):  # else its rank died while it wrote
                epoch, spans = json.loads(line)
                yield epoch, spans


def learned(result: dict[str, Any], undisturbed: float) -> list[str]:
    """The last epoch's distance from the truth, against an undisturbed run's."""
    off = result["epochs"][-1]["eval"]["off"]
    return [] if off <= undisturbed * (1 + NOISE) else [f"it ended {off:.3f} off, an undisturbed run {undisturbed:.3f}"]
