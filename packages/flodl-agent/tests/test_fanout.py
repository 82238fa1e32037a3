"""`flodl-agent fanout`: this box directly, other boxes through a real sshd, and how it all ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess

import msgspec
import pytest
from agent_fakes import Box, FakeWindow, Running, formed, wait_gone, wait_until
from agent_sshd import Sshd

from flodl_agent.fanout import Fanout
from flodl_wire import environ
from flodl_wire.join_messages import Hello, RankExited
from flodl_wire.specs import FanoutEvent, FanoutHost, FanoutSpec

SLEEP = ["python", "-c", "import time; print('up', flush=True); time.sleep(600)"]


def start(box: Box, spec: FanoutSpec, **more: str) -> Running:
    running = box.start("fanout", box.environment(**more))
    running.write(msgspec.json.encode(spec) + b"\n")
    return running


def events(running: Running) -> list[FanoutEvent]:
    *lines, _ = running.printed().split("\n")
    return [msgspec.json.decode(line, type=FanoutEvent) for line in lines]


def event(running: Running, kind: str) -> FanoutEvent:
    return wait_until(lambda: next((event for event in events(running) if event.kind == kind), None), kind)


def test_a_local_host_needs_no_ssh_and_its_exit_is_an_event(window: FakeWindow, box: Box) -> None:
    host = FanoutHost(window.spec(path=str(box.project)), local=True, env={environ.HOST_NAME: "node-a"})
    running = start(box, FanoutSpec([host]))
    link = window.link()
    link.accept([0])
    link.send(formed(["true"], box.project, relay=False))
    link.answer_bye()
    assert running.wait() == 0
    assert [(event.kind, event.code) for event in events(running)] == [("started", None), ("exited", 0)]
    assert events(running)[0].command == f"{box.bin}/flodl-agent run"


def test_the_end_of_stdin_ends_every_agent_and_what_it_started(window: FakeWindow, box: Box) -> None:
    hosts = [FanoutHost(window.spec(name, path=str(box.project)), local=True) for name in ("node-a", "node-b")]
    running = start(box, FanoutSpec(hosts), MARK="fanout-eof-mark")
    links = [window.link(), window.link()]
    for link in links:
        link.accept([0])
        link.send(formed(SLEEP, box.project))
        link.wait_line(0, "up")
    running.close_stdin()
    for link in links:
        assert link.wait_for(RankExited).ordered
        link.answer_bye()
    assert running.wait() == 1
    wait_gone("fanout-eof-mark")


def test_the_order_to_end_after_all_have_ended_begins_nothing() -> None:
    """The launcher closes the roster's stdin in the very moment in which the last agent leaves."""

    async def late() -> None:
        fanout = Fanout(FanoutSpec([]), lambda event: None)
        assert await fanout.run()
        fanout.end()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(late())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_fan_out_that_is_killed_takes_its_agents_with_it(window: FakeWindow, box: Box, number: int) -> None:
    mark = f"fanout-kill-mark-{number}-"
    running = start(box, FanoutSpec([FanoutHost(window.spec(path=str(box.project)), local=True)]), MARK=mark)
    link = window.link()
    link.accept([0])
    link.send(formed(SLEEP, box.project))
    link.wait_line(0, "up")
    running.process.send_signal(number)
    link.answer_bye()
    assert running.wait() in (1, -signal.SIGKILL)
    wait_gone(mark)


def test_what_the_agent_complains_of_before_it_dials_are_its_last_words(window: FakeWindow, box: Box) -> None:
    spec = window.spec(path=str(box.root / "not here"))
    running = start(box, FanoutSpec([FanoutHost(spec, local=True)]))
    assert running.wait() == 1
    exited = event(running, "exited")
    assert exited.code == 1 and "cannot use node-a: it has no folder" in exited.text and "fix: " in exited.text


def test_a_missing_ssh_is_named(window: FakeWindow, box: Box) -> None:
    running = start(box, FanoutSpec([FanoutHost(window.spec("node-b"), local=False)]), PATH="/nowhere")
    assert running.wait() == 1
    assert "cannot run ssh: no such file or directory" in event(running, "exited").text


def behind_a_deaf_ssh(box: Box, window: FakeWindow, mark: str) -> Running:
    """As over a cut road: it notices neither the end of its stdin nor a polite signal."""
    deaf = box.root / "deaf/ssh"
    deaf.parent.mkdir()
    deaf.write_text("#!/bin/sh\ntrap '' TERM HUP\necho deaf\nwhile :; do sleep 1; done\n")
    deaf.chmod(0o755)
    spec = FanoutSpec([FanoutHost(window.spec("node-b"), local=False)])
    running = start(box, spec, MARK=mark, PATH=f"{deaf.parent}:/usr/bin:/bin")
    assert event(running, "line").text == "deaf"
    return running


def test_an_ssh_that_hears_nothing_dies_with_the_fan_out(window: FakeWindow, box: Box) -> None:
    running = behind_a_deaf_ssh(box, window, "deaf-mark-1")
    running.process.kill()
    wait_gone("deaf-mark-1")


def test_an_ssh_that_hears_nothing_is_killed_when_its_time_is_up(window: FakeWindow, box: Box) -> None:
    running = behind_a_deaf_ssh(box, window, "deaf-mark-2")
    running.close_stdin()
    assert running.wait() == 1
    assert event(running, "exited").code == -signal.SIGKILL
    wait_gone("deaf-mark-2")


def over_ssh(box: Box, window: FakeWindow, sshd: Sshd) -> FanoutHost:
    """The box as another host: the agent in the project's own environment."""
    venv = box.project / ".venv"
    venv.symlink_to(box.root)
    spec = window.spec("node-b", path=str(box.project))
    scale = os.environ[environ.NET_TIMEOUT_SCALE]
    return FanoutHost(
        spec, local=False, ssh=sshd.road(), env={environ.HOST_NAME: "node-b", environ.NET_TIMEOUT_SCALE: scale}
    )


def test_an_agent_over_ssh_takes_part_and_the_spec_is_on_no_command_line(
    window: FakeWindow, box: Box, sshd: Sshd
) -> None:
    running = start(box, FanoutSpec([over_ssh(box, window, sshd)]))
    link = window.link()
    link.accept([0])
    assert link.wait_for(Hello).host == "node-b"
    link.send(formed(["python", "-c", f"import os; print(os.environ['{environ.HOST_NAME}'])"], box.project))
    started = event(running, "started")
    assert window.spec().salt_hex not in started.command and "ServerAliveInterval=10" in started.command
    link.answer_bye()
    assert running.wait() == 0, running.printed()
    assert link.lines(0) == ["node-b"]


def test_an_agent_over_ssh_ends_when_the_fan_out_does_however_that_ends(
    window: FakeWindow, box: Box, sshd: Sshd
) -> None:
    running = start(box, FanoutSpec([over_ssh(box, window, sshd)]), MARK="ssh-kill-mark")
    link = window.link()
    link.accept([0])
    link.send(formed(SLEEP, box.project))
    link.wait_line(0, "up")
    running.process.kill()
    link.answer_bye()
    wait_gone("ssh-kill-mark")


def test_a_key_that_does_not_fit_shows_ssh_s_own_last_line_and_the_command(
    window: FakeWindow, box: Box, sshd: Sshd
) -> None:
    host = over_ssh(box, window, sshd)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", sshd.root / "wrong"], check=True)
    running = start(box, FanoutSpec([FanoutHost(host.agent, local=False, ssh=sshd.road(key="wrong"))]))
    assert running.wait() == 1
    exited = event(running, "exited")
    assert exited.code == 255 and "Permission denied" in exited.text.splitlines()[-1]
    assert exited.command.startswith("ssh -T -o ") and exited.command.endswith(" -- 127.0.0.1")


def test_a_changed_host_key_is_never_accepted(window: FakeWindow, box: Box, sshd: Sshd) -> None:
    host = over_ssh(box, window, sshd)
    (sshd.root / "known").write_text(f"[127.0.0.1]:{sshd.port} {(sshd.root / 'user.pub').read_text()}")
    running = start(box, FanoutSpec([FanoutHost(host.agent, local=False, ssh=sshd.road())]))
    assert running.wait() == 1
    assert event(running, "exited").code == 255
    assert "Host key verification failed" in event(running, "exited").text


def test_a_tunnel_leads_the_agent_to_us_by_a_port_that_ssh_was_given(window: FakeWindow, box: Box, sshd: Sshd) -> None:
    host = over_ssh(box, window, sshd)
    ours = host.agent.controller_port
    host.tunnel, host.agent.controller_host, host.agent.controller_port = ours, "192.0.2.7", 1
    running = start(box, FanoutSpec([host]))
    link = window.link()
    assert link.wait_for(Hello).host == "node-b"
    link.accept([0])
    code = "import json, os; print(json.loads(bytes.fromhex(os.environ['C']))['controller'])".replace(
        "'C'", repr(environ.CLUSTER_JSON)
    )
    link.send(formed(["python", "-c", code], box.project))
    link.answer_bye()
    assert running.wait() == 0, running.printed()
    dialled = link.lines(0)[0]
    assert "127.0.0.1" in dialled and str(ours) not in dialled, "every later connection takes the tunnel, too"
    assert not [event for event in events(running) if "Allocated port" in event.text]
    assert f"-R 127.0.0.1:0:127.0.0.1:{ours} -- " in event(running, "started").command


def test_a_forward_that_the_sshd_forbids_is_named_with_its_option(window: FakeWindow, box: Box, sshd: Sshd) -> None:
    host = over_ssh(box, window, sshd)
    sshd.authorize("restrict")
    host.tunnel = host.agent.controller_port
    running = start(box, FanoutSpec([host]))
    assert running.wait() == 1
    exited = event(running, "exited")
    assert exited.code == 255 and "remote port forwarding failed" in exited.text and "AllowTcpForwarding" in exited.text
