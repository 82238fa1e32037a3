"""Output under pressure: a link that takes nothing for a while."""

from __future__ import annotations

import socket

from agent_fakes import Box, FakeWindow, formed, wait_until

from flodl_wire.join_messages import Beat, Log, RankExited

LINES = 200_000  # of 100 bytes: more than the link, the sockets and the pipe hold together

SHOUT = f"""
import os, sys
for number in range({LINES}):
    print(f"{{number:099d}}")
    if number % 1000 == 0:
        open("progress", "w").write(str(number))
sys.stdout.flush()
open("progress", "w").write("done")
"""


def test_a_slow_link_brakes_the_process_and_loses_no_line(window: FakeWindow, box: Box) -> None:
    agent = box.agent(window.spec(path=str(box.project)))
    window.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    link = window.link()
    link.accept([0])
    progress = box.project / "progress"
    link.send(formed(["python", "-c", SHOUT], box.project, relay=False))
    link.wait_for(Log)
    link.reading.clear()

    looks: list[str] = []

    def stands_still() -> bool | None:
        if progress.exists():
            looks.append(progress.read_text())
        return True if len(looks) > 50 and len(set(looks[-50:])) == 1 else None

    wait_until(stands_still, "pause of the process")
    assert looks[-1] != "done"
    link.reading.set()
    exited = link.wait_for(RankExited)
    assert exited.code == 0
    assert [int(line) for line in link.lines(0)] == list(range(LINES))
    assert link.all(Beat)
    link.answer_bye()
    assert agent.wait() == 0
