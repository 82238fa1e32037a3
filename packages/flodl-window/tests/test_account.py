"""What `fdl why` says, end by end (accounts/), and where it looks for a run."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest
from window_accounts import ENDS, FOLDER, Remembered

from flodl_window import cli_why, run_dir
from flodl_window.aftermath import account, run_files, why_text
from flodl_window.aftermath.record import TALK
from flodl_window.events import StrangerRefused
from flodl_window.run_dir import RunDir
from flodl_wire.faults import Broken, Refused
from flodl_wire.result import RunResult


@pytest.mark.parametrize("name", ENDS)
def test_every_end_is_told_as_it_stands_there(name: str) -> None:
    play, end = ENDS[name]
    told = play()
    assert told.end == end
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert why_text.render(told) == text, "python packages/flodl-window/tests/window_accounts.py writes it anew"
    assert json.loads(json.dumps(account.document(told)))["end"] == end
    assert "swordfish" not in text.partition("--- node-b:2")[0]


@pytest.mark.parametrize("name", ENDS)
def test_the_live_page_is_told_the_same(name: str) -> None:
    """What to try, and what broke first where the verdict had named another; nothing for an end that is no failure."""
    play, end = ENDS[name]
    told = play()
    said = account.afterthought(told)
    text = (FOLDER / f"{name}.txt").read_text(encoding="utf-8")
    assert (said is None) == (end != "failed")
    if said is not None:
        assert said.tries and all(f"  - {line}\n" in text for line in said.tries)
        assert (said.first == "") == (said.note == "") == ("(the verdict named" not in text)
        assert said.first in text and said.note in text


def test_a_flood_of_strangers_leaves_room_for_what_counts() -> None:
    run = Remembered()
    for at in range(TALK + 200):
        run.rows += run.record.note(StrangerRefused("10.0.0.9", Broken("x", f"no {at}")), run.run, 0.0)
    assert len(run.rows) == TALK + 1
    run.trains()
    assert [row["kind"] for row in run.rows[-7:]] == [
        "hello",
        "relay_in",
        "relay_in",
        "rank_in",
        "rank_in",
        "rank_in",
        "began",
    ]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLODL_RUN_DIR", str(tmp_path))
    for run in ("20260101-000000-aaaa", "20260102-000000-bbbb"):
        made = RunDir.create(run)
        made.log("node-a-0", ["hello"])
        made.write_result(RunResult(run, "cpu_cadence", 2))
        made.close()
    return tmp_path / "runs"


def test_a_run_is_meant_by_its_id_its_beginning_its_folder_or_latest(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = runs / "20260102-000000-bbbb"
    for word in ("latest", second.name, "20260102", str(second), f"{second}/result.json"):
        assert run_files.find(word) == second, word
    (runs / "latest").unlink()
    assert run_files.find() == second
    assert run_files.folders() == [second, runs / "20260101-000000-aaaa"]
    for word, why in (
        ("2026", "2 begin so"),
        ("1999", "begins so"),
        ("/nowhere/x", "no folder of a run"),
        ("", "name"),
    ):
        with pytest.raises(Refused) as caught:
            run_files.find(word)
        assert why in str(caught.value)
    monkeypatch.setenv("FLODL_RUN_DIR", str(runs / "latest"))
    with pytest.raises(Refused) as caught:
        run_files.find()
    assert "there is none" in str(caught.value)


@pytest.mark.parametrize(
    "garbage", [b"", b"{", b"[1,2]", b'{"phase": 3, "ranks": 7}', b'{"ranks": [3]}', b"\xff\x00" * 9]
)
def test_a_folder_in_which_everything_is_broken_is_told_all_the_same(
    runs: Path, garbage: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("state.json", "result.json", "events.jsonl", "process.json", "metrics.jsonl", "history.json"):
        (runs / "latest" / name).write_bytes(garbage)
    assert cli_why.main([]) == 0
    assert "20260102-000000-bbbb" in capsys.readouterr().out


def test_a_bundle_says_what_it_holds_and_holds_no_secret(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("flodl_wire.sibling.find", lambda name: None)
    monkeypatch.setenv("SERVICE_PASSWORD", "correct-horse")
    log = runs / "latest/log/node-a-0.log"
    log.write_text("user correct-horse\nexport OTHER_TOKEN=battery-staple\n\x00\xff\n", encoding="latin-1")
    target = tmp_path / "b.tar.gz"
    assert cli_why.main(["--bundle", str(target), "--json"]) == 0
    packed: dict[str, Any] = json.loads(capsys.readouterr().out)
    with tarfile.open(target) as tar:
        texts = {member.name.partition("/")[2]: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]
    assert set(texts) == {entry["name"] for entry in packed["entries"]} >= {"why.txt", "log/node-a-0.log", "README.txt"}
    together = b"".join(texts.values())
    assert b"correct-horse" not in together and b"battery-staple" not in together and packed["masked"] >= 2
    assert target.stat().st_mode & 0o077 == 0
    assert cli_why.main(["--bundle", str(target)]) == 0
    assert "log/node-a-0.log" in capsys.readouterr().out
    with pytest.raises(Refused):
        cli_why.main(["--bundle", str(tmp_path)])
    with pytest.raises(Refused):
        cli_why.main(["--bundle", str(tmp_path / "no/such/folder.tar.gz")])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "runs"]


def test_events_are_kept_line_by_line_and_a_disk_that_is_full_costs_only_them(tmp_path: Path) -> None:
    made = RunDir.create("r", tmp_path)
    made.event({"kind": "opened", "text": "é\ud800".encode("utf-8", "replace").decode()})
    made.event({"kind": "verdict"})
    made.close()
    assert [row["kind"] for row in run_files.read(made.path).events] == ["opened", "verdict"]
    assert run_files.read(made.path).lives is True
    (made.path / "events.jsonl").unlink()
    (made.path / "events.jsonl").mkdir()
    made.event({"kind": "late"})
    assert "events.jsonl" in made.trouble


def test_a_process_that_is_gone_is_told_from_one_that_lives(tmp_path: Path) -> None:
    made = RunDir.create("r", tmp_path)
    mark = json.loads((made.path / "process.json").read_text())
    assert mark["pid"] == os.getpid()
    for change, lives in ({"start": 1}, False), ({"boot": "other"}, False), ({"host": "elsewhere"}, None), ({}, True):
        (made.path / "process.json").write_text(json.dumps({**mark, **change}))
        assert run_files.read(made.path).lives is lives
    assert run_dir.LEAST_FREE


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (
            [{"kind": "opened"}],
            "the launcher ended without a word in phase 'training': killed (kill -9, out of memory)",
        ),
        ([], "the process that trained ended without a word in phase 'training': killed (SIGTERM, kill -9, out of"),
    ],
)
def test_a_script_alone_may_also_have_been_ended_by_a_signal_that_a_launcher_answers(
    tmp_path: Path, events: list[dict[str, Any]], told: str
) -> None:
    made = RunDir.create("r", tmp_path)
    for event in events:
        made.event(event)
    made.close()
    mark = json.loads((made.path / "process.json").read_text())
    (made.path / "process.json").write_text(json.dumps({**mark, "start": 1}))
    (made.path / "state.json").write_text(json.dumps({"phase": "training"}))
    found = account.make(run_files.read(made.path), lambda name: [])
    assert found.end == "crashed" and told in why_text.render(found)


def header_of(epoch: int) -> bytes:
    """A checkpoint without tensors, of a run of three epochs."""
    text = json.dumps({"__metadata__": {"flodl": json.dumps({"epoch": epoch, "epochs": 3})}}).encode()
    return len(text).to_bytes(8, "little") + text


@pytest.mark.parametrize(
    ("newest", "before", "told"),
    [(header_of(2), b"", True), (header_of(3), header_of(2), False), (b"half", header_of(2), True), (b"", b"", False)],
)
@pytest.mark.parametrize("why", ["cannot write x: full", "interrupted by SIGINT"])
def test_a_run_that_broke_is_told_to_go_on_where_there_is_a_checkpoint_to_go_on_from(
    tmp_path: Path, why: str, newest: bytes, before: bytes, told: bool
) -> None:
    (tmp_path / "state.json").write_text(json.dumps({"phase": "failed", "why": why, "cause": {"what": why}}))
    (tmp_path / "checkpoint.safetensors").write_bytes(newest)
    (tmp_path / "checkpoint.previous.safetensors").write_bytes(before)
    text = why_text.render(account.make(run_files.read(tmp_path), lambda name: []))
    assert ("  - go on from its last checkpoint: put --resume in front of the command" in text) == told


def test_of_a_script_alone_its_fix_and_its_device_are_told_and_no_log_that_nobody_wrote(tmp_path: Path) -> None:
    cause = {"what": "cannot write x: full", "host": "box", "rank": 0, "fix": "9 MB are needed"}
    member = {"host": "box", "ranks": [0], "local_devices": ["cuda:0"], "gpus": []}
    state = {"phase": "failed", "why": cause["what"], "cause": cause, "members": [member]}
    state["ranks"] = [{"rank": 0, "host": "box", "device": "cuda:0", "status": "lost"}]
    (tmp_path / "state.json").write_text(json.dumps(state))
    text = why_text.render(account.make(run_files.read(tmp_path), lambda name: []))
    assert "\n  - 9 MB are needed\n" in text and "\n  box: cuda:0\n" in text
    assert "said nothing" not in text and "last lines" not in text
