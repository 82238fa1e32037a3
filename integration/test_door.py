"""Strangers at the one port: garbage, scanners and slow talkers cost nobody in the run anything."""

from __future__ import annotations

import json
import os
import socket
import struct
import urllib.request

import pytest
from integration.conftest import Make
from integration.project import rank_command
from integration.until import until

LONG = {"run": rank_command("plain_rank.py", "--epochs", "100000"), "mode": "cpu_cadence"}
PREFACE = bytes.fromhex("f10d1fd1")

GARBAGE = {
    "nothing": b"",
    "one byte": b"\xf1",
    "half a preface": PREFACE,
    "another version": PREFACE + struct.pack(">HBB", 999, 1, 0),
    "an unknown kind": PREFACE + struct.pack(">HBB", 1, 77, 0),
    "a handshake of noise": PREFACE + struct.pack(">HBB", 1, 1, 1) + os.urandom(4000),
    "a relay that is none": PREFACE + struct.pack(">HBB", 1, 2, 1) + os.urandom(48),
    "a store that is none": PREFACE + struct.pack(">HBB", 1, 3, 1) + os.urandom(48),
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(500),
    "an endless request line": b"GET /" + b"a" * 100_000,
    "a raw TCPStore client": struct.pack("<BI", 9, 0x3C85F7CE) + b"\x00" * 64,
    "random": os.urandom(65536),
}


def talk(port: int, data: bytes) -> bytes:
    """What comes back for `data` before the other side closes."""
    with socket.create_connection(("127.0.0.1", port), timeout=15) as link:
        try:
            link.sendall(data)
            if not data:
                return b""
            answer = b""
            while chunk := link.recv(65536):
                answer += chunk
            return answer
        except ConnectionError:
            return b""


@pytest.mark.parametrize("order", ["before ranks", "while training"])
def test_garbage_is_turned_away_and_the_run_goes_on(project: Make, order: str) -> None:
    made = project(train=LONG)
    run = made.start("@one", "train")
    if order == "while training":
        run.phase("training")
    else:
        until(lambda: _listens(made.port), 30, lambda: run.text)
    for data in GARBAGE.values():
        talk(made.port, data)
    state = run.phase("training")
    assert len(state.members) == 1 and state.joined_ranks == 2
    before = state.progress.rounds if state.progress else 0
    until(lambda: (now := run.state()) and now.progress and now.progress.rounds > before, 20, lambda: run.text)
    with urllib.request.urlopen(f"http://127.0.0.1:{made.port}/state.json", timeout=5) as answer:
        assert json.load(answer)["phase"] == "training"
    run.interrupt()
    assert run.wait() == 130
    assert "Traceback" not in run.text


def test_silent_connections_do_not_keep_a_status_waiting(project: Make) -> None:
    made = project(train=LONG)
    run = made.start("@one", "train")
    run.phase("training")
    silent = [socket.create_connection(("127.0.0.1", made.port)) for _ in range(100)]
    try:
        assert made.fdl("status", "--json", "--addr", f"127.0.0.1:{made.port}").returncode == 0
    finally:
        for link in silent:
            link.close()
    run.interrupt()
    assert run.wait() == 130


def test_a_web_page_of_somebody_else_may_not_post(project: Make) -> None:
    made = project(train=LONG)
    run = made.start("@one", "train")
    run.phase("training")
    answer = talk(made.port, b"POST /start HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\n\r\n")
    assert answer.split(b" ")[1] in (b"403", b"404", b"405"), answer
    run.interrupt()
    run.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
