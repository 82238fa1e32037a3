"""The live page in a browser, on real runs."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from integration.browser import NARROW, WIDE, Watched, chromium
from integration.project import BIN, Project, rank_command
from integration.running import Running

from flodl_wire import environ
from flodl_wire.devices import CpuDevices
from flodl_wire.specs import AgentSpec

pytestmark = pytest.mark.xdist_group("page")  # one browser for both
TOKEN = "5eed" * 8


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as made:
        yield made


class Served:
    """`flodl-window serve` with agents that are started by hand, so that each phase lasts as long as a test wants."""

    def __init__(self, folder: Path, port: int, *words: str) -> None:
        self.project = Project(folder, port, {}, 1)
        worker = {"local_devices": "cpu:2", "path": str(self.project.folder), "nccl_socket_ifname": "lo"}
        join = {"token": TOKEN, "start": "manual", "min_rank_start": 4, "join_timeout": 600}
        config = {
            "cluster": {
                "controller": {"host": "127.0.0.1", "port": port, "path": str(self.project.folder), "join": join},
                "workers": [{**worker, "host": host} for host in ("attic", "tower")],
            }
        }
        self.project.write("c.json", config)
        command = rank_command("plain_rank.py", "--hostile", *words).split()
        self.agents: list[subprocess.Popen[bytes]] = []
        self.run = self._start(
            BIN / "flodl-window", "serve", "--config", "c.json", "--mode", "cpu_cadence", "--", *command
        )

    def _start(self, *words: Any) -> Running:
        process = subprocess.Popen(
            words, cwd=self.project.folder, env=self.project.environment(), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )  # fmt: skip
        run = Running(process, self.project.folder, self.project.inventory)
        self.project.runs.append(run)
        return run

    def agent(self, host: str, token: str = TOKEN) -> None:
        spec = AgentSpec(
            host, "127.0.0.1", self.project.port, token, CpuDevices(2), path=str(self.project.folder), roster_host=True
        )
        process = subprocess.Popen(
            [BIN / "flodl-agent", "run"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            cwd=self.project.folder, env=self.project.environment(),
        )  # fmt: skip
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(spec) + b"\n")
        process.stdin.flush()
        self.agents.append(process)

    def end(self) -> None:
        self.project.end()
        for agent in self.agents:
            agent.communicate(timeout=20)

    def fire(self) -> None:
        fired = self.project.fdl("start", "--addr", f"127.0.0.1:{self.project.port}")
        assert fired.returncode == 0, fired


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
    before = seen.page.evaluate("fetch('/history.json').then(answer => answer.json())")
    assert before["epochs"]["t"] and before["timeline"]
    seen.page.reload()
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
    run.failed()
    seen.picture("5-failed")
    seen.picture("5-failed", NARROW, "dark")
    show_hostile(seen.page)
    assert seen.fits() and not seen.strangers() and not seen.complaints, seen.complaints


HOSTILE = "</script><img src=x onerror='window.hacked = 1'>\u202egnp.exe &amp; {{7*7}}"
SHOW = """async doc => {
  const words = await import('/page/words.js');
  const shown = ['showPhase', 'showFigures', 'showRoster', 'showRefused', 'showMarks', 'showLogs', 'showVerdict'];
  for (const name of shown) words[name](doc, 0);
  await new Promise(done => setTimeout(done, 300));
  const main = document.getElementById('main');
  return [main.querySelectorAll('img, script, b, a[href*=evil]').length, window.hacked ?? 0, main.textContent];
}"""


def show_hostile(page: Any) -> None:
    """Every text that a peer can put into the page, put there."""
    text = HOSTILE
    member = {"host": text, "ranks": [0], "local_devices": [text], "gpus": [text], "libtorch": text, "road": text}
    rank = {"rank": 0, "host": text, "device": text, "status": text, "why": text}
    refused = {"host": text, "address": text, "code": text, "what": text, "why": text, "fix": text, "times": 2}
    progress = {"epoch": 0, "epochs": 1, "samples": 1, "dataset": 2, "samples_per_s": 1.0, "ranks": []}
    state = {
        "run": text, "phase": "failed", "why": text, "mode": text, "joined_ranks": 1, "joined_hosts": 1,
        "min_rank_start": 1, "target_ranks": None, "window_remaining_secs": None, "cap_remaining_secs": None,
        "start_mode": text, "start_armed": False, "ranks": [rank],
        "members": [{**member, "address": text, "status": text, "why": text}],
        "refused": [refused], "missing": [text], "progress": progress, "degraded": True,
        "cause": {"what": text, "host": text, "rank": 0, "tail": [text], "fix": text},
    }  # fmt: skip
    epochs = {"t": [1], "epoch": [0], "loss": [1], "eval": {text: [0.5]}}
    doc = {"state": state, "now": 1, "epochs": epochs, "hosts": {}, "tails": {text: [text]}, "marks": [[1, text, text]]}
    elements, hacked, shown = page.evaluate(SHOW, doc)
    assert (elements, hacked) == (0, 0)
    assert shown.count(text) >= 15, "as text, wherever it stands"


def free_port_beside(other: int) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    return port if port != other else free_port_beside(other)
