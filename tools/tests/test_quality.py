"""The statistics of `make quality`, and the page it writes; its runs are measured, not tested."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.quality import page
from tools.quality.contenders import ALONE, CONTENDERS, WORKS, Contender, Work
from tools.quality.paired import Comparison, compare, sentence, spread

PEER = {0: 0.90, 1: 0.92, 2: 0.94, 3: 0.96, 4: 0.98}  # spread 0.0316


def against_alone(contender: dict[int, float], **more: bool) -> Comparison:
    return compare(contender, PEER, PEER, **{"higher_is_better": True, **more})


def moved(by: float, noise: float = 0.0) -> dict[int, float]:
    return {seed: metric + by + noise * (-1) ** seed for seed, metric in PEER.items()}


def test_the_spread_is_the_sample_standard_deviation() -> None:
    assert spread(PEER) == pytest.approx(math.sqrt(0.001))
    assert spread({0: 0.5}) == 0.0


def test_pairs_are_made_by_seed_and_other_seeds_are_left_out() -> None:
    found = against_alone({4: 0.99, 0: 0.91, 17: 0.1})
    assert (found.seeds, found.behind) == (2, 0)
    assert found.difference == pytest.approx(0.01)
    assert found.deviation == pytest.approx(0.0)
    with pytest.raises(ValueError, match="no seed"):
        against_alone({17: 0.1})


def test_where_less_is_better_the_difference_turns_its_sign() -> None:
    assert against_alone(moved(0.01), higher_is_better=False).difference == pytest.approx(-0.01)
    assert against_alone(moved(0.01), higher_is_better=False).behind == 5


@pytest.mark.parametrize(
    ("contender", "kept", "says"),
    [
        (moved(0.0, noise=0.01), True, "No difference that 5 seeds could tell; behind in 2"),
        (moved(-0.02), True, "Behind by 0.6 spreads, in 5 of 5 seeds, which is within"),
        (moved(0.03), True, "Ahead by 0.9 spreads"),
        (moved(-0.05), False, "WORSE: behind by 1.6 spreads, in 5 of 5 seeds."),
        (moved(-0.05, noise=0.06), False, "WORSE: behind by 1.2 spreads, in 2 of 5 seeds; these seeds do not settle"),
    ],
)
def test_behind_by_more_than_the_spread_is_worse_and_a_sentence_says_so(
    contender: dict[int, float], kept: bool, says: str
) -> None:
    found = against_alone(contender)
    assert found.kept is kept
    assert sentence(found).startswith(says)


@given(st.dictionaries(st.integers(0, 9), st.floats(0, 1), min_size=1))
def test_a_run_is_never_worse_than_itself(metrics: dict[int, float]) -> None:
    found = compare(metrics, metrics, metrics, higher_is_better=True)
    assert found.kept and not found.told


def test_behind_by_the_spread_itself_is_within_it() -> None:
    metrics = {seed: metric - spread(PEER) for seed, metric in PEER.items()}
    assert against_alone(metrics).kept


def test_one_seed_tells_no_difference() -> None:
    found = against_alone({0: 0.5})
    assert not found.told and "do not settle" in sentence(found)


def rows(**moved: float) -> list[page.Row]:
    """Of everybody on the first work, each ended as PEER says, but for those moved by so much."""
    return [row(WORKS[0], contender, seed, **moved) for contender in CONTENDERS for seed in PEER]


def row(work: Work, contender: Contender, seed: int, **moved: float) -> page.Row:
    metrics = {metric.name: PEER[seed] + moved.get(contender.name, 0.0) for metric in work.metrics}
    return {
        "work": work.name, "contender": contender.name, "seed": seed, "metrics": metrics,
        "samples": work.samples * work.epochs * contender.epochs, "rounds": 7 + seed, "others": 0.2,
    }  # fmt: skip


def test_a_table_has_a_row_for_each_pair_that_was_run() -> None:
    text = page.table(rows(), WORKS[0], WORKS[0].metrics[0])
    assert "Seeds: 5." in text and "spread 0.0316" in text
    assert text.count(f"| {ALONE} | 9 |") == sum(ALONE in contender.against for contender in CONTENDERS)
    assert page.table(rows(), WORKS[1], WORKS[1].metrics[0]) == ""


def test_the_rule_is_for_worlds_and_a_run_alone_is_there_to_be_looked_at() -> None:
    single = next(contender.name for contender in CONTENDERS if contender.against and not contender.hosts)
    found = rows(**{single: -0.5, "cpu_sync": -0.5})
    broken = [each.contender.name for each in page.pairings(found, WORKS[0], WORKS[0].metrics[0]) if not each.kept]
    assert broken == ["cpu_sync"]
    text = page.table(found, WORKS[0], WORKS[0].metrics[0])
    assert text.count("WORSE") == 1 and f"| {single} | {ALONE} |" in text


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """The whole script, but for the training: ``called(cpu_sync=-0.5, words=[…])`` → its exit code and its page."""
    written = tmp_path / "quality.md"
    written.write_text("# Title\n<!-- measured -->\n<!-- end measured -->\n")
    pytest.importorskip("torch")
    script = importlib.import_module("tools.quality.__main__")
    monkeypatch.setattr(script, "KEPT", tmp_path / "runs.jsonl")
    monkeypatch.setattr(script, "warm_up", lambda: None)

    def call(words: list[str], **moved: float) -> tuple[int, str]:
        monkeypatch.setattr(script, "run", lambda work, contender, seed: row(work, contender, seed, **moved))
        return script.main([*words, "--page", str(written)]), written.read_text()

    return call


def test_the_script_writes_each_table_and_fails_when_a_row_breaks_the_rule(
    called: Callable[..., tuple[int, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    code, text = called(["--seeds", "3"])
    assert code == 0 and "WORSE" not in text
    assert [text.count(f"### {work.name}: {metric.text}") for work in WORKS for metric in work.metrics] == [1, 1, 1, 1]
    code, text = called(["--seeds", "3"], cpu_async=-0.5)
    assert code == 1 and "WORSE" in text
    assert "digits, accuracy: cpu_async" in capsys.readouterr().err


def test_a_call_that_goes_on_runs_only_what_is_missing(called: Callable[..., tuple[int, str]]) -> None:
    assert called(["--seeds", "1", "--works", "digits"])[0] == 0
    code, text = called(["--seeds", "3", "--go-on"], cpu_async=-0.5)
    assert code == 1 and "in 2 of 3 seeds" in text, "the first seed's runs were kept"


def test_only_what_stands_between_the_marks_is_written_anew() -> None:
    old = "# Title\n<!-- measured -->\nold \\1\n<!-- end measured -->\nbelow\n"
    text = page.measured(rows(), "Measured on a day, \\g<0>.")
    fresh = page.with_measured(old, text)
    assert fresh.startswith("# Title\n<!-- measured -->\nMeasured on a day, \\g<0>.") and fresh.endswith("below\n")
    assert page.with_measured(fresh, text) == fresh
    with pytest.raises(ValueError, match="measured"):
        page.with_measured("no marks", text)


def test_whom_a_contender_is_compared_with_is_a_contender() -> None:
    names = {contender.name for contender in CONTENDERS}
    assert len(names) == len(CONTENDERS)
    assert all(set(contender.against) <= names for contender in CONTENDERS)
    alone = {contender.name for contender in CONTENDERS if not (contender.hosts or contender.against)}
    assert ALONE in alone and all(contender.against[0] in alone for contender in CONTENDERS if contender.against)


def test_a_world_has_its_ranks_in_the_order_of_its_hosts() -> None:
    assert Contender("two and one", hosts=(2, 1)).ranks() == {"host-0": [0, 1], "host-1": [2]}


def test_a_schedule_is_as_long_as_the_work_whatever_the_batch() -> None:
    work = replace(WORKS[0], samples=100, epochs=3)
    half = Contender("half the rate", batch=2, lr=0.5)
    assert (Contender("as it is").steps(work), half.steps(work), replace(half, epochs=2).steps(work)) == (21, 12, 24)
    assert half.arguments(work)[-6:] == ["--epochs", "3", "--batch-size", "32", "--lr", "0.005"]
