"""The page through `ssh -L` from another box: another port in front of it, another name, the same guard."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.browser import Watched, missing
from integration.cluster import PORT, Cluster
from integration.project import rank_command
from integration.until import until

NEAR = 8711  # the port on the box of whoever looks
ASK = """
import http.client, json, sys
port, path, headers = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
ask = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
ask.putrequest("GET", path, skip_host=True, skip_accept_encoding=True)
for name, value in headers.items():
    ask.putheader(name, value)
ask.endheaders()
answer = ask.getresponse()
body = answer.readline() + answer.readline() if path == "/events" else answer.read()
print(json.dumps([answer.status, answer.getheader("Content-Type"), body.decode()]))
"""
BROWSER = {"Accept-Encoding": "gzip, deflate", "Accept": "text/html", "Sec-Fetch-Site": "none"}


@pytest.fixture
def tunnel(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    """A run on desk whose port only desk itself can reach, and attic's ssh to it."""
    desk = {"host": "desk", "local_devices": "cpu:2", "path": str(cluster.folder), "nccl_socket_ifname": "lo"}
    controller = {"host": "127.0.0.1", "path": str(cluster.folder)}
    command = rank_command("plain_rank.py", "--epochs", "3", "--hold", str(tmp_path / "enough"))
    cluster.write({"train": {"run": command, "mode": "cpu_cadence"}}, {"controller": controller, "workers": [desk]})
    cluster.start("@cluster", "train").phase("training")
    forward = f"{NEAR}:127.0.0.1:{PORT}"
    ssh = cluster.lab.popen(
        "attic", "ssh", "-N", "-o", "ExitOnForwardFailure=yes", "-L", forward, "desk",
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    until(lambda: ask(cluster, "/state.json", Host=f"localhost:{NEAR}"), 30, "ssh -L does not listen")
    yield cluster
    ssh.kill()
    ssh.communicate()


def ask(cluster: Cluster, path: str, **headers: str) -> list[Any] | None:
    """Status, content type and (of a stream the beginning of) the body, as attic sees them."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    done = cluster.lab.run("attic", sys.executable, "-c", ASK, NEAR, path, json.dumps(named), timeout=60)
    answer: list[Any] | None = json.loads(done.stdout) if done.returncode == 0 else None
    return answer


def test_through_a_forwarded_port_a_browsers_requests_are_answered_and_foreign_names_are_not(tunnel: Cluster) -> None:
    for name in (f"localhost:{NEAR}", f"127.0.0.1:{NEAR}", f"desk:{NEAR}"):
        headers = {"Host": name, **BROWSER}
        page = ask(tunnel, "/", **headers)
        assert page and page[0] == 200 and page[1].startswith("text/html"), (name, page)
        stream = ask(tunnel, "/events", **{**headers, "Sec-Fetch-Site": "same-origin", "Origin": f"http://{name}"})
        assert stream and stream[0] == 200 and stream[1].startswith("text/event-stream"), (name, stream)
        history = ask(tunnel, "/history.json", **headers)
        assert history and history[0] == 200 and json.loads(history[2])["state"]["phase"] == "training", (name, history)
    for name in (f"evil.example:{NEAR}", f"127.0.0.1.evil.example:{NEAR}"):
        for path in ("/", "/events", "/history.json"):
            turned = ask(tunnel, path, Host=name, **BROWSER)
            assert turned and turned[0] == 403, "a page's own name has been turned to this box (DNS rebinding)"
    origin = {"Host": f"localhost:{NEAR}", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    refused = ask(tunnel, "/history.json", **{**BROWSER, **origin})
    assert refused and refused[0] == 403


def test_chromium_on_another_box_sees_the_run_through_ssh(tunnel: Cluster, tmp_path: Path) -> None:
    if why := missing():
        pytest.skip(f"the page in a browser: {why}")
    from playwright.sync_api import sync_playwright

    there = tmp_path / "chromium-on-attic"  # Playwright starts one program: this one, which goes to attic first
    words = tunnel.lab.hosts["attic"].command(cwd=tmp_path)
    there.write_text(f'#!/bin/sh\nexec {shlex.join(words)} {shutil.which("chromium")} "$@"\n')
    there.chmod(0o755)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=there, args=["--no-sandbox", "--disable-dev-shm-usage"])
        seen = Watched(browser, f"http://localhost:{NEAR}/")
        seen.phase("training")
        seen.shows("live", "#link")
        seen.shows("2 of 2 ranks", "#roster")
        (tmp_path / "enough").touch()
        seen.phase("done", 60)
        assert not seen.strangers() and not seen.complaints, seen.complaints
        browser.close()
