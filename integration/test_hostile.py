"""Text that others choose (hosts, cards, metrics, log lines), as hostile as it can be: in the page, its charts, the
report and the terminal it is shown as text, breaks out of nothing and turns nothing around.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from integration.browser import NARROW, SCREENS, WIDE, Watched
from integration.conftest import Make
from integration.served import Served

TURNED = "\N{RIGHT-TO-LEFT OVERRIDE}gnp.exe\N{LEFT-TO-RIGHT ISOLATE}"
NAMES = [
    "</script><img src=x onerror='window.hacked = 1'>",
    TURNED,
    "\x1b[31mred\x1b[0m\x07",
    "one\ntwo\r\nthree",
    "x" * 200,
    "__proto__",
    "constructor",
    "{{7*7}} &amp; ${7*7} ]]>",
]
TITLES = "titles => [...document.querySelectorAll(titles)].map(each => each.textContent)"
# of "name 0.5, name 0.5, …" letters still stand in their order, also those of a name that says otherwise
TURNS = """() => {
  const figures = [...document.querySelectorAll('#charts figure')];
  const last = figures.find(each => each.textContent.includes('Evaluation')).querySelector('.last').firstChild;
  const left = at => {
    const part = document.createRange();
    part.setStart(last, at);
    part.setEnd(last, at + 1);
    return part.getBoundingClientRect().left;
  };
  const at = last.data.indexOf('gnp');
  return at > 0 && left(at) < left(at + 6);
}"""
FORBIDDEN = "#main img, #main script, #main b, [onerror]"


def document() -> dict[str, Any]:
    """What a run of hostile hosts and metrics tells, in the shape of /history.json."""
    text = NAMES[0] + TURNED
    member = {"ranks": [0], "local_devices": [text], "gpus": [text], "libtorch": text, "road": text, "address": text}
    refused = {"host": text, "address": text, "code": text, "what": text, "why": text, "fix": text, "times": 2}
    ranks = [{"rank": at, "host": name, "device": text, "status": "lost", "why": text} for at, name in enumerate(NAMES)]
    progress = {"epoch": 0, "epochs": 1, "samples": 1, "dataset": 2, "samples_per_s": 1.0, "ranks": []}
    state = {
        "run": text, "phase": "failed", "why": text, "mode": text, "joined_ranks": 8, "joined_hosts": 8,
        "min_rank_start": 1, "target_ranks": None, "window_remaining_secs": None, "cap_remaining_secs": None,
        "start_mode": text, "start_armed": False, "ranks": ranks,
        "members": [{**member, "host": name, "status": "lost", "why": text} for name in NAMES],
        "refused": [refused], "missing": [text], "progress": progress, "degraded": True,
        "cause": {"what": text, "host": TURNED, "rank": 1, "tail": [text], "fix": text},
    }  # fmt: skip
    row = {"t": [1, 2], "cpu": [0.1, 0.2], "memory": [0.5, 0.5], "rx": [1, 2], "tx": [3, 4], "gpu0": [0.5, 0.6]}
    return {
        "v": 1, "run": text, "mode": text, "opened_at": 1.0, "now": 2.0, "state": state,
        "totals": {"t": [1, 2], "samples_per_s": [1, 2], "loss": [2, 1], "balance": [1, 1], "sync_share": [0, 0]},
        "ranks": {"t": [1, 2], "rate": {"0": [1, 2], "1": [2, 3]}},
        "epochs": {"t": [1, 2], "epoch": [0, 1], "loss": [2, 1], "eval": {name: [0.25, 0.5] for name in NAMES}},
        "timeline": [{"t": 1, "dt": 1, "rows": [[0, 0.5, 0.2, 0.1, 3, 30], [1, 0.6, 0.1, 0.1, 3, 30]]}],
        "hosts": {name: {**row, "facts": {"memory_total": 1, "gpus": {"0": text}}} for name in NAMES},
        "tails": {**{f"{name}:{at}": [text, "\x1b[2Jgone"] for at, name in enumerate(NAMES)}},
        "marks": [[1, text, text]],
    }  # fmt: skip


def news() -> dict[str, Any]:
    """The next piece of it, with names that were not there before."""
    load = {"t": 3, "cpu": 0.3, "memory": 0.5, "rx": 1, "tx": 2, "facts": {"gpus": {}}}
    epoch = {"t": 3, "epoch": 2, "loss": 1, "wall_s": 1, "samples": 3, "eval": dict.fromkeys(NAMES, 0.75)}
    return {"now": 3, "epochs": [epoch], "hosts": dict.fromkeys([*NAMES, "toString"], load)}


def upright(text: str) -> str:
    """What is left open would reach out of the element that isolates it: so these marks are shown, and not followed."""
    return text.replace("\N{RIGHT-TO-LEFT OVERRIDE}", "\ufffd").replace("\N{LEFT-TO-RIGHT ISOLATE}", "\ufffd")


def shown_as_text(page: Any) -> None:
    """What holds for the page and for the report."""
    assert page.query_selector_all(FORBIDDEN) == [] and page.evaluate("window.hacked ?? 0") == 0
    titles = page.evaluate(TITLES, "#hosts figcaption strong")
    labels = page.evaluate(TITLES, "#charts .u-label")
    for name in NAMES:
        isolated = f"\N{FIRST STRONG ISOLATE}{upright(name)}\N{POP DIRECTIONAL ISOLATE}"
        assert isolated in titles and f"{isolated}: network" in titles and isolated in labels, name
    assert page.evaluate("Object.keys(Object.prototype).length + Object.keys(Object).length") == 0
    assert page.evaluate(TURNS), "a name that turns the direction turns itself only"


def test_hostile_hosts_and_metrics_are_text_on_the_live_page(tmp_path: Path, free_port: int, browser: Any) -> None:
    parts = (("history", document()), ("news", news()))
    events = "".join(f"event: {kind}\ndata: {json.dumps(data)}\n\n" for kind, data in parts)
    served = Served(tmp_path / "project", free_port)
    try:
        address = served.run.line("live page").rpartition(" ")[2]
        seen = Watched(browser, address, events)
        seen.shows("toString", "#hosts")
        seen.page.wait_for_function("() => document.querySelectorAll('#hosts .u-legend').length >= 16")
        for width in (WIDE, NARROW):
            for theme in ("light", "dark"):
                seen.picture("7-hostile", width, theme)
                assert seen.fits(), f"{width} px"
                shown_as_text(seen.page)
        chosen = seen.page.eval_on_selector("#source", "select => select.value")
        assert chosen == f"{TURNED}:1", "the culprit's output, whatever it is called"
        text = upright(NAMES[0] + TURNED)
        assert seen.page.text_content("body").count(text) >= 15, "as text, wherever it stands"
        assert not seen.strangers() and not seen.complaints, seen.complaints
    finally:
        served.end()


def test_hostile_hosts_and_metrics_are_text_in_the_report_and_in_the_terminal(project: Make, browser: Any) -> None:
    made = project(train={"run": "true"})
    told = document()
    text = NAMES[0] + TURNED
    run = made.folder / "runs" / "20260101-000000-abcd"
    (run / "log").mkdir(parents=True)
    state = told["state"]
    epochs = [{"epoch": 0, "loss": 1.0, "samples": 3, "eval": dict.fromkeys(NAMES, 0.5)}]
    ranks = [{"rank": at, "host": name, "samples": 3, "samples_per_s": 1.0} for at, name in enumerate(NAMES)]
    verdict = {"t": 2, "kind": "verdict", "phase": "failed", "text": text, "cause": {"t": 2, **state["cause"]}}
    hellos = [{"t": 1, "kind": "hello", "host": name, "python": text, "devices": [text]} for name in NAMES]
    opened = {"t": 0, "kind": "opened", "command": [text], "name": text, "environment": {text: text}}
    (run / "state.json").write_text(json.dumps(state))
    (run / "history.json").write_text(json.dumps(told))
    (run / "result.json").write_text(json.dumps({"verdict": "failed", "wall_s": 3, "epochs": epochs, "ranks": ranks}))
    (run / "events.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [opened, *hellos, verdict]))
    (run / "log" / "node-1.log").write_text(text + "\n\x1b[2Jgone\x9b31m\n")
    assert made.fdl("report", run.name).returncode == 0
    for command in (["why", run.name], ["runs"]):
        said = made.fdl(*command)
        assert said.returncode == 0 and "img src=x" in said.stdout, said
        assert all(ch.isprintable() or ch in "\n\t" for ch in said.stdout), command
    complaints: list[str] = []
    for theme in ("light", "dark"):
        context = browser.new_context(viewport={"width": WIDE, "height": 900}, offline=True, color_scheme=theme)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto((run / "report.html").as_uri())
        page.wait_for_selector("html[data-drawn=yes]")
        shown_as_text(page)
        assert page.text_content("#main").count(upright(text)) >= 10
        page.screenshot(path=SCREENS / f"8-hostile-report-{theme}.png", full_page=True)
        page.set_viewport_size({"width": NARROW, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        assert not complaints, complaints
        context.close()
