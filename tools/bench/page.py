"""Fifty open pages and one that never reads, over a run of 64 ranks with 10,000 points each.

Promised: a run trains as fast as with nobody watching (within 1 %), the window's memory stays bounded, and a page draws
a frame in less than 100 ms. The readers sit on the same box as the ranks, so what they cost is in our figure.

`peer` of the rate is the same run unwatched, interleaved; of the memory 256 MB, of the frame 100 ms.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tools.bench.rows import ROOT, report, row

PAGES = 50
PAIRS = 3
WATCH_S = 12.0
MEMORY_MB = 256.0
FRAME_MS = 100.0
PLAIN_RANK = ROOT / "integration" / "ranks" / "plain_rank.py"
REQUEST = b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

# Drawing is measured where it happens: the page marks each drawing, the browser says how long it took.
OBSERVE = """() => {
  window.drawn = [];
  const note = list => window.drawn.push(...list.getEntries().map(each => each.duration));
  new PerformanceObserver(note).observe({ entryTypes: ['measure'] });
}"""


class Watchers:
    """`PAGES` streams that are read, and one that is not, in a process of their own."""

    def __init__(self, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.bench.page", "--watch", str(port)], stdin=subprocess.PIPE, cwd=ROOT
        )

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(20)


async def watch(port: int) -> None:
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    deaf.connect(("127.0.0.1", port))
    deaf.send(REQUEST)

    async def read() -> None:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(REQUEST)
            while await reader.read(1 << 16):
                pass
            writer.close()

    reading = [asyncio.ensure_future(read()) for _ in range(PAGES)]
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    loop.add_reader(0, lambda: None if gone.done() else gone.set_result(None))
    await gone
    for task in reading:
        task.cancel()
    deaf.close()


def trained(watched: bool) -> float:
    """Samples per second of a real run of two ranks."""
    with tempfile.TemporaryDirectory() as name, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        probe.close()
        folder = Path(name)
        worker = {"host": socket.gethostname(), "local_devices": "cpu:2", "path": name, "nccl_socket_ifname": "lo"}
        controller = {"host": "127.0.0.1", "port": port, "path": name}
        (folder / "c.json").write_text(json.dumps({"cluster": {"controller": controller, "workers": [worker]}}))
        rank = [sys.executable, str(PLAIN_RANK), "--samples", "4800", "--epochs", "3", "--batch-ms", "10"]
        command = [str(Path(sys.executable).parent / "flodl-window"), "launch", "--config", "c.json", "--", *rank]
        run = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        assert run.stderr is not None
        watchers = None
        said = []
        for line in run.stderr:
            said.append(line)
            if watched and watchers is None and "live page" in line:
                watchers = Watchers(port)
        code = run.wait()
        run.stderr.close()
        if watchers:
            watchers.end()
        if code:
            raise RuntimeError("the run failed:\n" + "".join(said[-20:]))
        result = json.loads((folder / "runs/latest/result.json").read_text())
    return float(result["samples_per_s"])


def rate_row() -> dict[str, Any]:
    pairs = [(trained(True), trained(False)) for _ in range(PAIRS)]
    ours, peer = statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)
    ratio = statistics.median(a / b for a, b in pairs)
    return row(f"rate with {PAGES} pages and a deaf one, unwatched", ours, peer, ratio, unit="/s", at_least=0.99)


def watched_rows() -> list[dict[str, Any]]:
    world = subprocess.Popen(
        [sys.executable, "-m", "tools.bench.page_world"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert world.stdin is not None and world.stdout is not None
    port = int(world.stdout.readline())
    figures: list[dict[str, float]] = []

    def listen(seconds: float) -> list[dict[str, float]]:
        assert world.stdout is not None
        heard, end = [], time.monotonic() + seconds
        while time.monotonic() < end:
            heard.append(json.loads(world.stdout.readline()))
        figures.extend(heard)
        return heard

    alone = listen(5.0)
    watchers = Watchers(port)
    listen(2.0)
    watched = listen(WATCH_S)
    watchers.end()
    frames = drawn(port)
    listen(1.0)
    world.stdin.close()
    world.wait(20)
    world.stdout.close()
    memory = max(each["rss"] for each in figures) / 1e6
    cost = [(part[-1]["cpu_s"] - part[0]["cpu_s"]) / max(1, len(part) - 1) for part in (watched, alone)]
    late = [statistics.median(each["late_ms"] for each in part) for part in (watched, alone)]
    print(f"pages open {max(each['pages'] for each in watched):.0f}, dropped {figures[-1]['dropped']:.0f}")
    rows = [
        row("window's memory, MB", memory, MEMORY_MB, MEMORY_MB / memory, at_least=1.0),
        row("window's processor per second, s", cost[0], cost[1], cost[1] / max(cost[0], 1e-9)),
        row("how late the loop is, p99, ms", late[0], late[1], late[1] / max(late[0], 1e-9)),
    ]
    if frames:
        slowest = sorted(frames)[int(len(frames) * 0.95)]
        rows.append(row("a page's drawing, p95, ms", slowest, FRAME_MS, FRAME_MS / slowest, at_least=1.0))
    return rows


def drawn(port: int) -> list[float]:
    """Milliseconds of each drawing in Chromium; empty where there is none."""
    chromium = shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        chromium = None
    if not chromium:
        print("no chromium with playwright here: drawing is not measured")
        return []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.add_init_script(f"({OBSERVE})()")
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_function("() => window.drawn.length >= 60", timeout=60_000)
        times: list[float] = page.evaluate("() => window.drawn")
        screens = ROOT / "build" / "screens"
        screens.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=screens / "6-sixty-four-ranks-1600-light.png", full_page=True)
        browser.close()
    print(f"frames of drawing: {len(times)}, median {statistics.median(times):.0f} ms, slowest {max(times):.0f} ms")
    return times


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["--watch"]:
        asyncio.run(watch(int(words[1])))
        return 0
    rows = watched_rows()
    if "--page" not in words:
        rows.append(rate_row())
    return 0 if report("page", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
