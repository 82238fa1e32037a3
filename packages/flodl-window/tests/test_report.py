"""The report as a file: whole, quiet, and harmless whatever a peer has said; `fdl runs` beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
import warnings
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from window_accounts import ENDS, Remembered
from window_worlds import charter, cluster

from flodl_window import cli_report, cli_runs
from flodl_window.aftermath import figures, listing, report, run_files
from flodl_window.aftermath.keeping import Keeping
from flodl_window.aftermath.run_files import RunFiles
from flodl_window.live.history import History
from flodl_window.run_dir import RunDir
from flodl_wire.faults import Broken, Refused
from flodl_wire.hub_messages import EpochDone, Progress, RankProgress
from flodl_wire.join_messages import RankExited
from flodl_wire.result import EpochResult, RankResult, RunResult

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\u202egnp.exe \x1b[2J&amp;'\""


class Tags(HTMLParser):
    """Which elements there are, what stands in scripts, which attributes might load or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.risky: list[str] = []
        self.scripts: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name.startswith("on") or (name in ("src", "href") and not str(value).startswith("data:")):
                self.risky.append(f"{tag} {name}={value}")
            if value == "Content-Security-Policy":
                self.policy = str(dict(attrs)["content"])

    def handle_data(self, data: str) -> None:
        if data.strip() and self.tags and self.tags[-1] == "script" and self.get_starttag_text() == "<script>":
            self.scripts.append(data)


def folder(tmp_path: Path, run: str = "20260101-000000-abcd") -> RunDir:
    return RunDir.create(run, tmp_path)


def full(made: RunDir) -> None:
    """A run of two ranks with everything that a run leaves, its names evil."""
    history = History(made.run, "cpu_cadence", 1_796_000_000.0)
    history.note_mark(1.0, "training", EVIL)
    history.note_began(1.0)
    ranks = [RankProgress(0, 100.0, 3), RankProgress(1, 50.0, 2)]
    history.note_progress(2.0, Progress(0, 2, 50, 100, 150.0, 0.5, 0.9, 0.1, ranks=ranks))
    history.note_epoch(3.0, EpochDone(0, "epoch", 0.5, 2.0, 100, eval={EVIL: 0.9, "accuracy": 0.8}))
    made.write_history(msgspec.json.encode(history.document(4.0)))
    places = [
        RankResult(0, EVIL, "cpu", 30, 200, 2.0, 0.1, 100.0),
        RankResult(1, "node-b", "cpu", 15, 100, 2.0, 0.1, 50.0),
    ]
    epochs = [EpochResult(0, 0.5, 2.0, 300, {EVIL: 0.9})]
    made.write_result(
        RunResult(made.run, "cpu_cadence", 2, wall_s=2.0, samples=300, samples_per_s=150.0, ranks=places, epochs=epochs)
    )
    driven = Remembered().trains()
    driven.says("node-b", RankExited(2, 1, tail=[EVIL]))
    made.write_state(msgspec.json.decode(msgspec.json.encode(driven.files().state), type=Any))
    for row in driven.rows:
        made.event({**row, "project": EVIL})
    made.log("node-b-2", [EVIL])
    made.close()


def test_a_report_is_one_file_that_fetches_nothing_and_runs_nothing_of_others(tmp_path: Path) -> None:
    made = folder(tmp_path)
    full(made)
    text = report.write(made.path).read_text(encoding="utf-8")
    seen = Tags(text)
    assert seen.risky == [] and "img" not in seen.tags and "iframe" not in seen.tags
    assert seen.tags.count("script") == 2 and len(seen.scripts) == 1
    digest = base64.b64encode(hashlib.sha256(seen.scripts[0].encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in seen.policy and "default-src 'none'" in seen.policy
    assert "\x1b" not in text and "https://" not in re.sub(r"<script>.*</script>", "", text, flags=re.S)
    data = re.search(r'id="document">(.*?)</script>', text, re.S)
    assert data is not None and json.loads(data[1])["ranks"]["rate"] == {"0": [100.0], "1": [50.0]}
    assert "On the fastest rank alone (rank 0" in text and "1.50 times as fast" in text
    assert "What broke first" in text and not list(made.path.glob(".*"))


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_report(name: str, tmp_path: Path) -> None:
    told = ENDS[name][0]()
    files = RunFiles(tmp_path, {"phase": "failed", "why": told.sentence, "cause": {"what": "x"}}, {}, [])
    assert "</html>" in report.render(files)


@pytest.mark.parametrize("garbage", [b"", b"{", b'{"totals": 3}', b'{"ranks": [3], "epochs": [[]], "marks": [[1]]}'])
def test_a_report_of_a_broken_folder_says_what_there_is(tmp_path: Path, garbage: bytes) -> None:
    made = folder(tmp_path)
    for name in ("state.json", "result.json", "events.jsonl", "metrics.jsonl", "history.json"):
        (made.path / name).write_bytes(garbage)
    assert "</html>" in report.write(made.path).read_text()


def test_a_report_that_cannot_be_written_leaves_the_old_one_and_the_run(tmp_path: Path) -> None:
    made = folder(tmp_path)
    (made.path / "report.html").mkdir()
    with pytest.raises(Broken) as caught:
        report.write(made.path)
    assert not list(made.path.glob(".*")) and "name another file with -o" in caught.value.fix


def test_a_report_that_fails_in_any_way_costs_the_run_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> Path:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(report, "write", broken)
    kept = Keeping(folder(tmp_path), charter(cluster("cpu:2")), 0.0)
    assert kept.report() == "there is no report of this run: no (fdl report tries again)"


def test_what_to_try_is_masked_and_a_broken_folder_costs_only_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB_PASSWORD", "correct horse")
    made = folder(tmp_path)
    kept = Keeping(made, charter(cluster("cpu:2")), 0.0)
    assert kept.afterthought() is None, "it has not failed"
    cause = {"what": "rank 0 on a exit 3", "host": "a", "rank": 0, "fix": "say correct horse"}
    (made.path / "state.json").write_text(json.dumps({"phase": "failed", "why": "rank 0", "cause": cause}))
    (made.path / "events.jsonl").write_text(json.dumps({"kind": "verdict", "t": 1, "phase": "failed", "cause": cause}))
    said = kept.afterthought()
    assert said is not None and said.tries[0] == "say ***"

    def broken(path: Path) -> None:
        raise ZeroDivisionError("no")

    monkeypatch.setattr(run_files, "read", broken)
    assert kept.afterthought() is None


def test_the_curves_of_a_run_that_nobody_watched_come_from_its_metrics() -> None:
    rows = [
        {"kind": "round"},
        {"kind": "epoch", "epoch": 0, "loss": 0.5, "wall_s": 2.0, "samples": 10, "eval": {"a": 1}},
    ]
    drawn = figures.document({}, rows, {"run": "r"})
    assert drawn["epochs"] == {
        "t": [2.0], "epoch": [0.0], "loss": [0.5], "wall_s": [2.0], "samples": [10.0], "eval": {"a": [1.0]}
    }  # fmt: skip
    assert figures.alone({"ranks": [{"rank": 0, "samples_per_s": 5.0}], "samples": 10, "wall_s": 2.0}) is None


def test_the_verb_writes_where_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = folder(tmp_path)
    full(made)
    target = tmp_path / "elsewhere.html"
    assert cli_report.main([str(made.path), "-o", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n" and target.read_text().endswith("</html>\n")
    assert cli_report.main([str(made.path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == str(made.path / "report.html")


def test_tensorboard_reads_back_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tensorboard", reason="the extra [tensorboard] is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries below it
        from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    made = folder(tmp_path)
    full(made)
    for _ in range(2):  # anew in place of the old
        assert cli_report.main([str(made.path), "--tensorboard", "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    (file,) = Path(told["tensorboard"]).iterdir()
    events = [event for event in EventFileLoader(str(file)).Load() if event.summary.value]
    read = {
        value.tag: (event.step, round(event.wall_time - 1_796_000_000), value.tensor.float_val[0])
        for event in events
        for value in event.summary.value
    }
    assert len(events) == told["scalars"]
    assert read["epoch/loss"] == (0, 3, 0.5) and read["samples_per_s/rank 1"] == (2, 2, 50.0)
    assert read["eval/accuracy"][2] == pytest.approx(0.8)


def test_without_the_extra_tensorboard_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard.compat.proto.event_pb2", None)
    made = folder(tmp_path)
    full(made)
    with pytest.raises(Refused) as caught:
        cli_report.main([str(made.path), "--tensorboard"])
    assert "flodl-window[tensorboard]" in caught.value.fix


def test_runs_are_listed_newest_first_in_what_room_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for at, run in enumerate(("20260101-000000-aaaa", "20260102-000000-bbbb", "20260103-000000-cccc")):
        made = folder(tmp_path, run)
        if at:
            epochs = [EpochResult(0, 0.25, 2.0, 300, {"accuracy": 0.9})]
            made.write_result(
                RunResult(run, "cpu_cadence", 2, wall_s=125.0, samples=300, samples_per_s=1500.0, epochs=epochs)
            )
        made.event({"kind": "opened", "at": 1_796_000_000.0 + at, "name": "train", "command": ["python", EVIL]})
        made.close()
    assert cli_runs.main([str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0][-4:] for line in lines] == ["run", "cccc", "bbbb", "aaaa"]
    assert "loss 0.25, accuracy 0.9" in lines[1] and "2:05" in lines[1] and "1,500" in lines[1]
    assert cli_runs.main(["-n", "1", "--json", str(tmp_path / "runs")]) == 0
    (row,) = json.loads(capsys.readouterr().out)["runs"]
    assert (row["run"], row["metrics"], row["command"]) == ("20260103-000000-cccc", {"accuracy": 0.9}, ["python", EVIL])
    rows = [listing.of(run_files.read(path)) for path in run_files.folders([tmp_path / "runs"])]
    for width in (40, 60, 80, 120, 200):
        text = listing.render(rows, width)
        assert all(len(line) <= width for line in text.splitlines()) and "20260103-000000" in text, width
    assert listing.render([], 80) == "no runs here yet\n"


def test_a_history_with_anything_in_the_place_of_its_tables_still_draws_what_is_one() -> None:
    broken = {
        "run": "r", "mode": "m", "tails": {}, "marks": [], "timeline": [7, {"rows": [4]}, {"rows": 5}, {}],
        "totals": {"t": [1, float("inf")], "loss": 5}, "ranks": {"t": 3, "rate": {"0": [1, 2], "1": None}},
        "epochs": {"t": [1], "eval": 4}, "hosts": {"a": 5, "b": {"t": [1], "cpu": [0.5], "rx": "x"}},
    }  # fmt: skip
    drawn = figures.document(broken, [], {})
    json.dumps(drawn, allow_nan=False)
    assert drawn["totals"] == {"t": [1, None]} and drawn["ranks"] == {"t": [], "rate": {"0": [1, 2]}}
    assert drawn["epochs"] == {"epoch": [], "t": [1], "eval": {}}
    assert [row["rows"] for row in drawn["timeline"]] == [[], [], []]
    assert drawn["hosts"] == {"b": {"t": [1], "cpu": [0.5]}}
