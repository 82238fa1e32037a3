"""The live page in a browser, on real runs."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import msgspec
import pytest
from integration.browser import NARROW, WIDE, Watched
from integration.project import Project, rank_command
from integration.served import Served

from flodl_wire import environ


@pytest.fixture
def serve(tmp_path: Path, free_port: int) -> Iterator[Any]:
    made: list[Served] = []

    def start(*words: str) -> Served:
        made.append(Served(tmp_path / "project", free_port, *words))
        made[-1].run.line("window open")
        return made[-1]

    yield start
    for each in made:
        each.end()


def test_a_run_is_seen_from_the_open_window_to_its_end(serve: Any, browser: Any, tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    served: Served = serve(
        "--hold", str(enough), "--epochs", "24", "--samples", "720", "--batch-ms", "4", "--slow", "3:2.5"
    )
    address = served.run.line("live page").rpartition(" ")[2]
    seen = Watched(browser, address)
    seen.phase("waiting")
    assert {urlsplit(url).path for url in seen.asked if not url.startswith("data:")} == {"/", "/events"}, "nothing more"
    seen.shows("0 of 4 ranks")
    seen.shows("until it gives up", "#countdown")
    seen.shows("not in yet", "#roster")
    served.agent("nobody", "ab" * 16)
    seen.shows("127.0.0.1", "#refused")
    seen.picture("1-refused")
    served.agent("attic")
    seen.shows("2 of 4 ranks on 1 host", "#roster")
    seen.picture("1-waiting")
    assert seen.fits()
    served.agent("tower")
    seen.phase("staging")
    seen.picture("2-staging", WIDE, "dark")

    served.fire()
    seen.phase("training")
    seen.shows("samples per second", "#figures")
    seen.shows("Evaluation of the averaged model", "#charts")
    seen.shows("accuracy", "#figures")
    seen.page.wait_for_selector("#timeline canvas")
    seen.shows("CPU", "#hosts")

    # a page that is loaded in the middle knows what happened before
    with urlopen(f"{address}history.json") as answer:
        before = json.load(answer)
    assert before["epochs"]["t"] and before["timeline"]
    seen.load()
    seen.phase("training")
    seen.shows("Evaluation of the averaged model", "#charts")
    seen.shows("waiting", "#marks")

    # what ranks print is text, whatever it looks like
    seen.page.select_option("#source", "attic:0")
    seen.shows("</script><img src=x onerror=alert(1)>red", "#lines")
    assert seen.page.query_selector("#lines img") is None and "\x1b" not in seen.page.inner_text("#lines")
    seen.shows("<b>metric</b>", "#figures")

    # by keyboard alone
    seen.page.evaluate("() => document.activeElement.blur()")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("() => document.activeElement.className") == "skip"
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("() => document.activeElement.id") == "main"
    seen.page.keyboard.press("t")
    assert seen.page.evaluate("() => document.documentElement.dataset.theme") == "light"
    seen.page.focus("#theme")
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate("() => document.documentElement.dataset.theme") == "dark"
    seen.page.keyboard.press("t")
    seen.page.focus("#source")
    seen.page.keyboard.press("ArrowDown")
    assert seen.page.eval_on_selector("#source", "select => select.value") == "attic:1"
    outline = seen.page.eval_on_selector("#source", "select => getComputedStyle(select).outlineStyle")
    assert outline == "solid", "what has the focus shows it"

    for width in (WIDE, NARROW):
        for theme in ("light", "dark"):
            seen.picture("3-training", width, theme)
            assert seen.fits(), f"{width} px"

    enough.touch()
    seen.phase("done", 60)
    seen.shows("training finished", "#verdict")
    state = served.run.done()
    assert state.dashboard_port == served.project.port
    seen.shows("ended", "#link")
    seen.shows("Evaluation of the averaged model", "#charts")
    seen.picture("4-done")
    kept = msgspec.json.decode((served.run.run_folder / "history.json").read_bytes())
    assert kept["state"]["phase"] == "done" and len(kept["epochs"]["loss"]) == 24
    assert not seen.strangers() and not seen.complaints, seen.complaints


def test_a_failure_is_told_with_its_cause(project: Any, browser: Any, free_port: int) -> None:
    made: Project = project(
        train={"run": rank_command("plain_rank.py", "--epochs", "50", "--exit", "1:12:3"), "mode": "cpu_cadence"}
    )
    run = made.start("@one", "train", env={environ.DASHBOARD_BIND: f"127.0.0.1:{free_port_beside(free_port)}"})
    seen = Watched(browser, run.line("live page").rpartition(" ")[2])
    seen.phase("failed")
    seen.shows("rank 1", "#verdict")
    seen.shows("exit 3", "#verdict")
    seen.shows("leaves in window 12", "#verdict")
    seen.shows("What to try", "#verdict")
    run.failed()
    told = json.loads(made.fdl("why", "--json").stdout)["try"]
    assert told and seen.page.eval_on_selector_all("#verdict .tries li", "items => items.map(i => i.innerText)") == told
    kept = (run.run_folder / "report.html").read_text()
    assert all(escape(line) in kept for line in told), "and the report has them"
    seen.picture("5-failed")
    seen.picture("5-failed", NARROW, "dark")
    chosen = seen.page.eval_on_selector("#source", "select => select.value")
    assert chosen.endswith(":1"), "the culprit's output is open, not the first rank's"
    seen.shows("leaves in window 12", "#lines")
    assert seen.fits() and not seen.strangers() and not seen.complaints, seen.complaints


def free_port_beside(other: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return port if port != other else free_port_beside(other)
