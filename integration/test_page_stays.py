"""A page that stays open: over two runs on the same port, a drawing that fails, a stream that is cut."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.browser import Watched
from integration.served import Served

# A plotter that takes its time, so that news comes in the middle of a drawing.
SLOW = """() => {
  const quick = window.uPlot;
  window.uPlot = function (...given) {
    for (const until = performance.now() + 400; performance.now() < until; );
    return new quick(...given);
  };
  window.uPlot.join = quick.join;
}"""
# One that fails the first time.
FAILS_ONCE = """() => {
  const join = window.uPlot.join;
  window.uPlot.join = () => {
    window.uPlot.join = join;
    throw new Error("it fails once");
  };
}"""


@pytest.fixture
def address(tmp_path: Path, free_port: int) -> Iterator[str]:
    """Where a window serves its page; what the page hears is told by the tests."""
    served = Served(tmp_path / "project", free_port)
    yield served.run.line("live page").rpartition(" ")[2]
    served.end()


def stream(kind: str, data: dict[str, Any], retry: int = 100) -> str:
    """A stream of one event, after whose end the page comes back in `retry` ms."""
    return f"retry: {retry}\n\nevent: {kind}\ndata: {json.dumps(data)}\n\n"


def document(run: str, *hosts: str, trained: bool) -> dict[str, Any]:
    """A run in the shape of /history.json."""
    both = [1, 2] if trained else []
    state = {
        "run": run, "phase": "training", "why": "", "mode": "cpu_sync", "joined_ranks": 2, "joined_hosts": 1,
        "min_rank_start": 2, "target_ranks": None, "window_remaining_secs": None, "cap_remaining_secs": None,
        "start_mode": "auto", "start_armed": False, "ranks": [], "members": [], "refused": [], "missing": [],
        "progress": None, "degraded": False, "cause": None,
    }  # fmt: skip
    load = {"t": [1, 2], "cpu": [0.1, 0.2], "memory": [0.5, 0.5], "rx": [1, 2], "tx": [3, 4], "facts": {"gpus": {}}}
    return {
        "v": 1, "run": run, "mode": "cpu_sync", "opened_at": 1.0, "now": 2.0, "state": state,
        "totals": {"t": both, "samples_per_s": both, "loss": both, "balance": both, "sync_share": both},
        "ranks": {"t": both, "rate": {"0": both, "1": both} if trained else {}},
        "epochs": {"t": both, "epoch": both, "loss": both, "eval": {"accuracy": both} if trained else {}},
        "timeline": [], "hosts": dict.fromkeys(hosts, load), "tails": {}, "marks": [[1, "began", f"run {run} began"]],
    }  # fmt: skip


def hears(seen: Watched, *streams: str) -> None:
    """The page gets these, one at each time it comes, and then nothing new."""
    told = itertools.chain(streams, itertools.repeat("retry: 100\n\n"))
    seen.page.route("**/events", lambda route: route.fulfill(content_type="text/event-stream", body=next(told)))


def test_a_run_that_begins_in_the_middle_of_a_drawing_is_shown_alone(browser: Any, address: str) -> None:
    seen = Watched(browser, address, "retry: 100\n\n")
    seen.page.evaluate(SLOW)
    first, second = document("first", "tower", trained=True), document("second", "attic", trained=False)
    hears(seen, stream("history", first, 700), stream("history", second))  # it is drawn within 500 ms, for 2 s
    seen.shows("attic", "#hosts")
    seen.shows("run second began", "#marks")
    titles = seen.page.eval_on_selector_all("#hosts figcaption strong", "all => all.map(each => each.textContent)")
    assert len(titles) == 2 and not any("tower" in title for title in titles), titles
    assert seen.page.query_selector_all("#charts figure") == []
    seen.close()


def test_a_drawing_that_fails_is_one_drawing_less(browser: Any, address: str) -> None:
    seen = Watched(browser, address, "retry: 100\n\n")
    seen.page.evaluate(FAILS_ONCE)
    news = [stream("news", {"now": now, "marks": [[now, "notice", f"second {now}"]]}) for now in range(3, 13)]
    hears(seen, stream("history", document("only", "tower", trained=True)), *news)  # over more than one drawing
    seen.shows("second 12", "#marks")
    seen.shows("tower", "#hosts")
    assert seen.complaints == ["it fails once"]
    seen.close()


def test_a_stream_that_is_cut_or_refused_is_asked_for_again(browser: Any, address: str) -> None:
    seen = Watched(browser, address, "retry: 100\n\n")
    told = stream("history", document("only", "tower", trained=False))
    answers: list[Callable[[Any], None]] = [
        lambda route: route.abort("connectionreset"),
        lambda route: route.fulfill(status=503, body="{}"),
        lambda route: route.fulfill(content_type="text/html", body="another program's page"),
        lambda route: route.fulfill(content_type="text/event-stream", body=told),
    ]
    seen.page.route("**/events", lambda route: (answers.pop(0) if len(answers) > 1 else answers[0])(route))
    seen.shows("run only began", "#marks", within=30)
    seen.close()
