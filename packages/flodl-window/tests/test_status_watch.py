"""`status --wait` and `--watch` against a controller that changes, comes late, or goes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from flodl_window import cli_status, status_watch
from flodl_wire.faults import Refused, Transient


class Controller:
    """Answers each request with the next phase, the last one for ever; None: it is gone."""

    def __init__(self, port: int, phases: list[str | None]) -> None:
        self.phases = phases
        self.looks = 0
        self._sock = socket.create_server(("127.0.0.1", port))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._sock.accept()
            except OSError:
                return
            phase = self.phases[min(self.looks, len(self.phases) - 1)]
            self.looks += 1
            with link:
                link.recv(4096)
                if phase is None:
                    self._sock.close()
                    return
                body = json.dumps({"phase": phase, "why": f"it is {phase}", "run": "r"}).encode()
                link.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    def close(self) -> None:
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._sock.close()
        self._thread.join(5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_watch, "EVERY", 0.01)
    monkeypatch.setattr(status_watch, "WATCH_EVERY", 0.01)


@pytest.fixture
def serve(free_port: int) -> Iterator[Any]:
    made: list[Controller] = []

    def start(*phases: str | None) -> str:
        made.append(Controller(free_port, list(phases)))
        return f"127.0.0.1:{free_port}"

    yield start
    for one in made:
        one.close()


def test_a_phase_is_waited_for_and_one_that_is_past_counts(serve: Any) -> None:
    where = serve("waiting", "waiting", "staging", "forming", "training")
    assert cli_status.main(["--addr", where, "--wait", "training", "--timeout", "10"]) == 0
    assert cli_status.main(["--addr", where, "--wait", "staging"]) == 0


def test_json_follows_the_wait(serve: Any, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    where = serve("waiting", "done")
    assert cli_status.main(["--addr", where, "--json", "--wait=done"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["phase"] == "done"


def test_time_that_is_over_says_what_was_seen_last(serve: Any, free_port: int) -> None:
    where = serve("waiting")
    with pytest.raises(Transient) as caught:
        cli_status.main(["--addr", where, "--wait", "done", "--timeout", "0.05"])
    assert caught.value.what == "not done within 0.05 s" and "the run is waiting: it is waiting" in caught.value.why


def test_nobody_there_is_waited_for_too(free_port: int) -> None:
    with pytest.raises(Transient) as caught:
        cli_status.main(["--addr", f"127.0.0.1:{free_port}", "--wait", "done", "--timeout", "0.05"])
    assert "connection refused" in caught.value.why


def test_a_run_that_failed_or_is_gone_is_not_waited_for(serve: Any) -> None:
    with pytest.raises(Refused) as caught:
        cli_status.main(["--addr", serve("training", "failed"), "--wait", "done"])
    assert caught.value.why == "the run failed: it is failed"


def test_a_run_that_is_gone_is_told_from_one_that_never_was(serve: Any) -> None:
    with pytest.raises(Refused) as caught:
        cli_status.main(["--addr", serve("training", None), "--wait", "done"])
    assert "the run was training" in caught.value.why


def test_watching_shows_what_changes_and_ends_with_the_run(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_status.main(["--addr", serve("waiting", "waiting", "waiting", "training", "done"), "--watch"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("cluster run")]
    assert [line.split(" — ")[1] for line in shown] == ["waiting", "training", "done"]


def test_watching_ends_when_the_controller_goes(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli_status.main(["--addr", serve("training", None), "--watch"]) == 0
    assert "the run is over" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--wait", "ready"], "no phase"),
        (["--wait", "failed"], "no phase"),
        (["--wait"], "value must follow"),
        (["--timeout", "3"], "bounds --wait"),
        (["--wait", "done", "--timeout", "soon"], "seconds"),
        (["--wait", "done", "--timeout", "-1"], "seconds"),
        (["--wait", "done", "--timeout", "inf"], "seconds"),
        (["--wait", "done", "--watch"], "in silence"),
        (["--json", "--watch"], "one document"),
        (["--json=yes"], "no option"),
    ],
)
def test_words_that_do_not_go_together_are_usage_errors(words: list[str], why: str) -> None:
    with pytest.raises(Refused) as caught:
        cli_status.main(words)
    assert caught.value.exit_code == 2 and why in caught.value.why
