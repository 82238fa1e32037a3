from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flodl_window import cli_status
from flodl_window.asking import candidates, fetch
from flodl_window.status_text import render
from flodl_wire import address, blob, environ
from flodl_wire.config import Cluster, Controller
from flodl_wire.faults import Broken, Refused, Transient
from flodl_wire.hub_messages import Progress, RankProgress
from flodl_wire.specs import LaunchConfig
from flodl_wire.state import Cause, Member, RankState, State

STATE = State(
    "run-1",
    "waiting",
    "have 2 ranks, need 1 more (waiting for node-b)",
    "cpu_cadence",
    2,
    1,
    3,
    3,
    280.4,
    580.4,
    "auto",
    False,
)
STATE.members = [Member("node-a", [0, 1], ["cuda:0", "cuda:1"], ["H200", "H200"], "cu128", 2.2, "ssh", "10.0.0.2")]


@pytest.fixture
def served() -> Iterator[Any]:
    """Serves one raw answer after another on a port of its own."""
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    sock.listen()

    def serve(answer: bytes) -> address.Address:
        def once() -> None:
            try:
                link, _ = sock.accept()
            except OSError:
                return
            with link:
                link.recv(4096)
                link.sendall(answer)

        threading.Thread(target=once, daemon=True).start()
        return address.Address("127.0.0.1", sock.getsockname()[1])

    yield serve
    sock.close()


def http(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def text(state: State) -> str:
    return render(json.loads(msgspec.json.encode(state)), "10.0.0.1:1337")


def test_the_text_says_phase_why_counts_countdowns_and_roster() -> None:
    assert text(STATE).splitlines() == [
        "cluster run @ 10.0.0.1:1337 — waiting",
        "  have 2 ranks, need 1 more (waiting for node-b)",
        "  run run-1, mode cpu_cadence",
        "  ranks: 2 on 1 host (quorum 3, target 3)",
        "  window: 280s left, cap: 580s left",
        "  node-a  ranks 0-1  2x H200  cu128  joined +2s  (ssh 10.0.0.2)",
    ]


def test_the_text_shows_ranks_and_rates_while_training() -> None:
    state = msgspec.structs.replace(
        STATE, phase="training", window_remaining_secs=None, cap_remaining_secs=None, degraded=True
    )
    state.ranks = [
        RankState(0, "node-a", "cuda:0", "training"),
        RankState(1, "node-a", "cuda:1", "lost", "killed by signal 9"),
    ]
    state.progress = Progress(1, 5, 61, 100, 1520.4, 0.2131, ranks=[RankProgress(0, 1100, 9)])
    shown = text(state)
    assert "training  DEGRADED" in shown and "epoch 2/5, 61/100 samples, 1520 samples/s, loss 0.2131" in shown
    assert "    rank 0  cuda:0  training  1100 samples/s" in shown and "lost (killed by signal 9)" in shown


@pytest.mark.parametrize(
    ("phase", "armed", "words"),
    [
        ("waiting", False, "waiting for quorum"),
        ("staging", False, "roster startable, fire with `fdl start`"),
        ("staging", True, "armed"),
    ],
)
def test_the_text_shows_the_switch(phase: str, armed: bool, words: str) -> None:
    assert words in text(msgspec.structs.replace(STATE, phase=phase, start_mode="manual", start_armed=armed))


def test_an_expired_window_says_so_and_a_cause_is_shown() -> None:
    assert "window: expired" in text(msgspec.structs.replace(STATE, window_remaining_secs=0.0))
    failed = msgspec.structs.replace(STATE, phase="failed", cause=Cause("rank 2 on node-b exit 3"))
    assert "first cause: rank 2 on node-b exit 3" in text(failed)


def test_text_from_afar_is_escaped_and_unknown_or_missing_fields_do_no_harm() -> None:
    evil = msgspec.structs.replace(STATE, why="\x1b]0;title\x07")
    assert "\x1b" not in text(evil)
    assert "cluster run @ x — ?" in render({"v": 99, "surprise": [1]}, "x")


def test_addresses_are_tried_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)  # where nothing has run yet
    assert list(map(str, candidates("box"))) == ["box:1337"]
    assert list(map(str, candidates(None))) == ["127.0.0.1:1337"]
    assert "asking 127.0.0.1:1337" in capsys.readouterr().err
    cluster = Cluster(Controller("10.0.0.5", "/p", 1400))
    monkeypatch.setenv(environ.FULL_CLUSTER_JSON, blob.encode(cluster))
    assert list(map(str, candidates(None))) == ["10.0.0.5:1400", "127.0.0.1:1400"]
    monkeypatch.setenv(environ.CONFIG_JSON, blob.encode(LaunchConfig(Cluster(Controller("127.0.0.1", "/p")))))
    assert list(map(str, candidates(None))) == ["127.0.0.1:1337"]
    assert list(map(str, candidates("[::1]:9"))) == ["[::1]:9"]
    monkeypatch.setenv(environ.CONFIG_JSON, "zz")
    with pytest.raises(Broken):
        candidates(None)


def test_a_bad_address_is_a_usage_error() -> None:
    with pytest.raises(Refused) as caught:
        candidates("h:99999")
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("left", "asked"),
    [
        (b'{"port": 41234}', 41234),
        (b"{}", 1337),
        (b'{"port": 0}', 1337),
        (b'{"port": "x"}', 1337),
        (b"[]", 1337),
        (b"half a li", 1337),
        (None, 1337),
    ],
)
@pytest.mark.parametrize("by_manifest", [False, True])
def test_without_a_cluster_the_last_run_of_the_folder_is_asked(
    left: bytes | None, asked: int, by_manifest: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environ.FULL_CLUSTER_JSON, raising=False)
    monkeypatch.delenv(environ.RUN_DIR, raising=False)
    monkeypatch.delenv(environ.CONFIG_JSON, raising=False)
    if by_manifest:
        (tmp_path / "below").mkdir()
        config = json.dumps({"manifest": str(tmp_path / "fdl.yml")})
        monkeypatch.setenv(environ.CONFIG_JSON, config.encode().hex())
    monkeypatch.chdir(tmp_path / "below" if by_manifest else tmp_path)
    if left is not None:
        (tmp_path / "runs" / "latest").mkdir(parents=True)
        (tmp_path / "runs" / "latest" / "state.json").write_bytes(left)
    assert candidates(None) == [address.Address("127.0.0.1", asked)]


@pytest.mark.parametrize("phase", ["done", "failed", "training"])
def test_when_nobody_answers_an_ended_last_run_is_told(
    phase: str, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (environ.FULL_CLUSTER_JSON, environ.RUN_DIR, environ.CONFIG_JSON):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "latest").mkdir(parents=True)
    state = {"run": "run-1", "phase": phase, "why": "training finished", "port": free_port}
    (tmp_path / "runs" / "latest" / "state.json").write_text(json.dumps(state))
    with pytest.raises(Transient) as caught:
        cli_status.main([])
    assert (f"run-1 is {phase}: training finished" in caught.value.fix) == (phase != "training")


def test_nobody_there_is_one_sentence_with_every_address(free_port: int) -> None:
    with pytest.raises(Transient) as caught:
        fetch([address.Address("127.0.0.1", free_port)] * 2)
    assert caught.value.why.count("connection refused") == 2 and caught.value.exit_code == 1


def test_the_next_address_is_tried_when_one_does_not_answer(served: Any, free_port: int) -> None:
    good = served(http(b'{"phase": "done"}'))
    where, body = fetch([address.Address("127.0.0.1", free_port), good])
    assert where == str(good) and body == b'{"phase": "done"}'


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
        (http(b'{"error": "nothing"}', "503 Service Unavailable"), "503"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", "broke off"),
        (b"", "does not speak HTTP"),
    ],
)
def test_what_is_no_state_is_named(served: Any, answer: bytes, words: str) -> None:
    with pytest.raises(Transient) as caught:
        fetch([served(answer)])
    assert words in caught.value.why


def test_json_is_the_body_as_it_was_served(served: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    where = served(http(b'{"phase":"done","new":1}\n'))
    assert cli_status.main(["--addr", str(where), "--json"]) == 0
    assert capfdbinary.readouterr().out == b'{"phase":"done","new":1}\n'


def test_status_imports_nothing_heavy() -> None:
    code = (
        "import sys, flodl_window.main, flodl_window.cli_status, flodl_window.status_text; print(sorted(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    for heavy in ("msgspec", "asyncio", "http", "argparse", "yaml", "cryptography", "dataclasses", "typing", "json"):
        assert f"'{heavy}'" not in loaded, heavy


def test_a_wrong_word_is_a_usage_error() -> None:
    for words in (["--adr", "x"], ["--addr"]):
        with pytest.raises(Refused) as caught:
            cli_status.main(words)
        assert caught.value.exit_code == 2


def test_the_text_shows_who_is_missing_and_who_was_refused_with_the_fix() -> None:
    refused = {
        "host": "vm",
        "address": "10.0.0.7",
        "code": "model-differs",
        "what": "cannot admit vm",
        "why": "its model is not that of node-a\x1b[31m",
        "fix": "bring it to the same version",
        "at_secs": 12.3,
        "times": 41,
    }
    stranger = {**refused, "host": "", "why": "it holds another token", "fix": "", "times": 1}
    shown = text(msgspec.structs.replace(STATE, refused=[refused, stranger], missing=["node-b"])).splitlines()
    assert "  node-b  MISSING: the roster names it" in shown
    assert shown[-4:] == [
        "  refused:",
        "    vm from 10.0.0.7 (+12s, 41 times): its model is not that of node-a\\x1b[31m",
        "      fix: bring it to the same version",
        "    somebody from 10.0.0.7 (+12s): it holds another token",
    ]
    many = text(msgspec.structs.replace(STATE, refused=[refused] * 30)).splitlines()
    assert many[-1] == "    and 22 more: --json has them all"


def test_a_walk_in_shows_both_ends_of_its_road() -> None:
    member = Member("vm", [2], ["cpu"], ["cpu"], "", 3.0, "direct", "10.0.0.7")
    member.own_address, member.dialled, member.walk_in = "172.17.0.2", "desk:1337", True
    shown = text(msgspec.structs.replace(STATE, members=[member]))
    assert "(direct 10.0.0.7, itself 172.17.0.2, to desk:1337)  walk-in" in shown
