"""`flodl-agent join` against a window that speaks the wire: a walk-in's life."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest
from agent_fakes import Box, FakeWindow, Running, wait_gone, wait_until
from agent_sshd import Sshd
from agent_walk_ins import TOKEN, join, serve, there, world

from flodl_wire import environ
from flodl_wire.devices import GpuDevices
from flodl_wire.join_messages import Bye, Hello, HostFault, Reject
from flodl_wire.specs import Command

SHOW = "import sys, os; print('args', sys.argv[1:], os.environ['FLODL_HOST_NAME'])"


@pytest.fixture
def train(box: Box) -> str:
    (box.project / "train.py").write_text(SHOW)
    return "train.py"


def test_a_walk_in_runs_its_own_program_with_the_controllers_arguments(
    window: FakeWindow, box: Box, train: str
) -> None:
    running = join(box, there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1", "--host", "box-7")
    link = serve(window, box, args=["--lr", "0.1"])
    assert running.wait() == 0, running.said()
    hello = link.wait_for(Hello)
    assert (hello.host, hello.argv, hello.road, hello.dialled) == ("box-7", None, "direct", there(window))
    assert hello.own_address == "127.0.0.1" and not hello.rehearsal
    assert link.lines(0) == ["args ['--lr', '0.1'] box-7"]
    said = running.said()
    assert "box-7: in, with rank 0; waiting" in said and "box-7: the world has formed: 1 ranks" in said
    assert running.printed() == ""


def test_arguments_of_its_own_are_stated_and_used(window: FakeWindow, box: Box, train: str) -> None:
    words = [there(window), "--token", TOKEN, "--devices", "cpu:1"]
    running = join(box, *words, "--bin", f"python -u {train}", "--", "--lr", "1", "--", "-x")
    link = serve(window, box)
    assert running.wait() == 0, running.said()
    assert link.wait_for(Hello).argv == ["--lr", "1", "--", "-x"]
    assert "args ['--lr', '1', '--', '-x']" in link.lines(0)[0]


def test_a_command_line_from_the_controller_is_never_run(window: FakeWindow, box: Box, train: str) -> None:
    running = join(box, there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1")
    link = window.link()
    link.accept([0])
    link.send(msgspec.structs.replace(world(box), command=Command(["touch", "owned"])))
    link.answer_bye()
    assert running.wait() == 0 and link.lines(0)[0].startswith("args []")
    assert not (box.project / "owned").exists()


def test_every_flag_defaults_from_the_block_and_wins_over_it(window: FakeWindow, box: Box, train: str) -> None:
    (box.root / "data").mkdir()
    block = {
        "controller": there(window), "token": TOKEN, "bin": train, "devices": "cpu:1", "host": "image", "args": ["a"],
        "data_path": str(box.root / "data"), "gpu_ram_share": 0.5,
    }  # fmt: skip
    for words, name, argv in (((), "image", ["a"]), (("--host", "typed", "--"), "typed", [])):
        running = join(box, *words, block=block, env={environ.HOST_NAME: "from-the-environment"})
        link = serve(window, box)
        assert running.wait() == 0, running.said()
        hello = link.wait_for(Hello)
        assert (hello.host, hello.argv) == (name, argv)


def test_the_name_of_the_box_comes_from_the_environment_when_nobody_says_another(
    window: FakeWindow, box: Box, train: str
) -> None:
    words = [there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1"]
    join(box, *words, env={environ.HOST_NAME: "from-the-environment"})
    assert serve(window, box).wait_for(Hello).host == "from-the-environment"


def test_the_devices_that_are_named_are_the_ones_its_ranks_see(window: FakeWindow, box: Box, train: str) -> None:
    """Two of four, by their own numbers; each is device 0 to its rank."""
    found = [{"index": index, "name": "T4", "vendor": "nvidia"} for index in range(4)]
    box.script("flodl-probe", f"print({json.dumps({'devices': found})!r})")
    (box.project / "train.py").write_text("import os; print('sees', os.environ['CUDA_VISIBLE_DEVICES'])")
    running = join(box, there(window), "--token", TOKEN, "--bin", train, "--devices", "2,3")
    link = window.link()
    assert [(offer.kind, offer.index) for offer in link.wait_for(Hello).devices] == [("cuda", 2), ("cuda", 3)]
    link.accept([0, 1])
    both = world(box)
    both.envelope.worker.ranks, both.envelope.world_size = [0, 1], 2
    both.envelope.worker.local_devices = GpuDevices([2, 3])
    link.send(both)
    link.answer_bye()
    assert running.wait() == 0, running.said()
    assert (link.lines(0), link.lines(1)) == (["sees 2"], ["sees 3"])


def test_a_token_may_stand_in_a_file(window: FakeWindow, box: Box, train: str) -> None:
    (box.root / "token").write_text(TOKEN + "\n")
    running = join(box, there(window), "--token", f"@{box.root}/token", "--bin", train, "--devices", "cpu:1")
    serve(window, box)
    assert running.wait() == 0, running.said()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--bin", "train.py"), "nobody said where to dial"),
        (("h", "--devices", "cpu:1"), "nobody said what to run"),
        (("h", "--devices", "cpu:1", "--bin", "other.py"), "there is no such file"),
        (("h", "--devices", "cpu:1", "--bin", "pyton train.py"), "neither on PATH nor in the project"),
        (("h", "--bin", "train.py", "--token", "abc"), "a token is 32 lowercase hex digits"),
        (("h", "--bin", "train.py", "--token", "G" * 32), "a token is 32 lowercase hex digits"),
        (("h:99999", "--bin", "train.py"), "99999 is no TCP port"),
        (("h:", "--bin", "train.py"), "no port follows the colon"),
        (("[::1", "--bin", "train.py"), "the bracket is not closed"),
        (("h", "--bin", "train.py", "--devices", "0,0"), "device 0 stands there twice"),
        (("h", "--bin", "train.py", "--devices", "two"), "an index must be a whole number"),
        (("h", "--bin", "train.py", "--devices", "GPU-1234"), "an index must be a whole number"),
        (("h", "--bin", "train.py", "--devices", "7"), "cannot use"),
        (("h", "--bin", "train.py"), "no usable device"),
        (("h", "--bin", "train.py", "--identity", "/k"), "--ssh"),
        (("--ssh", "u@h", "--identity", "/not/there", "--bin", "train.py", "--devices", "cpu:1"), "no such file"),
        (("h", "--bin", "train.py", "--host", "a/b"), "would be a path"),
        (("h", "--bin", "train.py", "--devices", "cpu:1", "--data-path", "/not/there"), "no such folder"),
        (("h", "--source", "/x"), "it has no scheme"),
        (("h", "--source", "file:///x", "--bin", "t.py"), "given or pulled, not both"),
        (("h", "--bin", "t.py", "--source-cwd", "sub"), "cannot use --source-cwd"),
        (("h", "--bin", "t.py", "--data-source", "nfs://h:/x"), "no scheme that says how to mount it"),
        (("h", "--bin", "train.py", "--devices", "cpu:1", "--libtorch", "builds/none"), "no such variant"),
        (("h", "--bin", "train.py", "--devices", "cpu:1", "--libtorch", "cu12"), "there is no build of that name"),
        (("u@h", "--bin", "train.py"), "users go with ssh (--ssh user@host)"),
        (("h", "--persits", "--bin", "train.py"), "did you mean --persist?"),
        (("h", "--bin"), "expected one argument"),
        (("h", "more"), "one controller is all that stands before --"),
        (("h", "--json"), "add --try"),
        (("h", "--persist", "--devices", "cpu:1", "--bin", "other.py"), "there is no such file"),
    ],
)
def test_a_flaw_of_this_box_is_2_before_anybody_is_dialled(
    box: Box, train: str, words: tuple[str, ...], said: str
) -> None:
    box.script("flodl-probe", 'print(\'{"devices": [], "notes": []}\')')
    running = join(box, *words)
    assert running.wait() == 2, running.said()
    assert said in running.said() and "Traceback" not in running.said()


def test_an_unknown_key_of_the_block_is_2_and_named(box: Box, train: str) -> None:
    running = join(box, block={"controler": "h", "bin": train})
    assert running.wait() == 2
    assert "join.controler" in running.said()


def test_a_rejected_walk_in_shows_the_controllers_reason_and_fix(window: FakeWindow, box: Box, train: str) -> None:
    running = join(box, there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1", "--host", "a")
    link = window.link()
    link.wait_for(Hello)
    link.send(Reject("window-closed", "cannot admit a", "the window is closed: the run is training", "dial again"))
    link.close()
    assert running.wait() == 1
    assert running.said() == "a: cannot admit a: the window is closed: the run is training\nfix: dial again\n"


def test_a_wrong_token_is_told_apart_from_a_closed_port(
    window: FakeWindow, box: Box, train: str, free_port: int
) -> None:
    running = join(box, there(window), "--token", "f" * 32, "--bin", train, "--devices", "cpu:1")
    window.link()
    assert running.wait() == 1 and "holds another salt or token" in running.said()
    closed = join(box, f"127.0.0.1:{free_port}", "--token", TOKEN, "--bin", train, "--devices", "cpu:1")
    assert closed.wait() == 1 and "nothing listens on that port (refused " in closed.said()


def test_it_persists_through_two_runs_and_joins_no_finished_one_twice(window: FakeWindow, box: Box, train: str) -> None:
    running = join(box, there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1", "--persist")
    serve(window, box, "first")
    again = window.link()
    again.accept([0], "first")
    assert again.wait_for(Bye).reason.startswith("did not join")
    again.close()
    serve(window, box, "second")
    wait_until(lambda: running.said().count("the run is over; dialling again in 0.5 s") == 2 or None, "second run")
    assert running.said().count("this host has run that run to its end; dialling again in 1 s") == 1
    running.process.send_signal(signal.SIGTERM)
    assert running.wait() == -signal.SIGTERM


def test_with_nobody_there_it_says_one_line_a_try(box: Box, train: str, free_port: int) -> None:
    running = join(box, f"127.0.0.1:{free_port}", "--token", TOKEN, "--bin", train, "--devices", "cpu:1", "--persist")
    wait_until(lambda: "dialling again in 1 s" in running.said() or None, "second try")
    lines = running.said().splitlines()
    assert [line.rpartition("; ")[2] for line in lines if not line.startswith("fix: ")] == [
        "dialling again in 0.5 s",
        "dialling again in 1 s",
    ]
    assert len([line for line in lines if line.startswith("fix: ")]) == 1, "the reason is the same"
    running.process.send_signal(signal.SIGINT)
    assert running.wait() == 130


def test_a_rank_that_fails_is_1_and_named(window: FakeWindow, box: Box, train: str) -> None:
    (box.project / "train.py").write_text("raise SystemExit(3)")
    running = join(box, there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1", "--host", "a")
    serve(window, box)
    assert running.wait() == 1 and running.said().endswith("\na: rank 0 ended: exit 3\n")


@pytest.mark.parametrize("where", [">/dev/full", ">&-"])
def test_a_person_who_cannot_be_told_costs_the_lines_and_not_the_run(
    window: FakeWindow, box: Box, train: str, where: str
) -> None:
    """A log on a full disk, a terminal that is gone."""
    words = [there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1"]
    shell = ["sh", "-c", f'exec "$@" 2{where}', "sh", box.bin / "flodl-agent", "join", *words]
    running = Running(shell, box.environment(), box.project)
    box.running.append(running)
    serve(window, box)
    assert running.wait() == 0


def test_told_to_end_it_says_goodbye_first(window: FakeWindow, box: Box, train: str) -> None:
    (box.project / "train.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    running = join(
        box, there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1", "--persist",
        env={"MARK": "join-term-mark"},
    )  # fmt: skip
    link = window.link()
    link.accept([0])
    link.send(world(box))
    link.wait_line(0, "up")
    running.process.send_signal(signal.SIGTERM)
    assert link.wait_for(HostFault).code == "signalled"
    link.answer_bye()
    assert running.wait() == -signal.SIGTERM
    wait_gone("join-term-mark")


def test_killed_it_leaves_nothing_behind(window: FakeWindow, box: Box, train: str) -> None:
    (box.project / "train.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    words = [there(window), "--token", TOKEN, "--bin", train, "--devices", "cpu:1"]
    running = join(box, *words, env={"MARK": "join-kill-mark"})
    link = window.link()
    link.accept([0])
    link.send(world(box))
    link.wait_line(0, "up")
    running.process.kill()
    assert link.wait_for(HostFault).code == "stdin-closed"
    link.answer_bye()
    wait_gone("join-kill-mark")


def test_through_a_guarded_sshd_it_walks_in_and_its_relay_takes_the_same_road(
    window: FakeWindow, box: Box, train: str, sshd: Sshd
) -> None:
    sshd.authorize(f'restrict,port-forwarding,permitopen="127.0.0.1:{window.port}",command="/usr/sbin/nologin"')
    road = sshd.road()
    block = {
        "controller": there(window), "bin": train, "devices": "cpu:1", "token": TOKEN,
        "ssh": {"target": "nobody-there", "port": 9, "identity_file": road.identity_file, "options": road.options},
    }  # fmt: skip
    running = join(box, "--ssh", f"{road.user}@127.0.0.1:{sshd.port}", block=block)
    link = window.link()
    link.accept([0])
    hello = link.wait_for(Hello)
    assert hello.road == "ssh" and hello.dialled.startswith("127.0.0.1:") and hello.dialled != there(window)
    link.send(world(box))
    link.answer_bye()
    assert running.wait() == 0, running.said()


def test_an_ssh_that_dies_in_mid_run_is_what_is_blamed(window: FakeWindow, box: Box, train: str, sshd: Sshd) -> None:
    (box.project / "train.py").write_text("import time; print('up', flush=True); time.sleep(600)")
    road = sshd.road()
    ssh = {"target": road.target, "port": road.port, "identity_file": road.identity_file, "options": road.options}
    block = {"controller": there(window), "bin": train, "devices": "cpu:1", "token": TOKEN, "ssh": ssh}
    running = join(box, block=block, env={"MARK": "join-ssh-mark"})
    link = window.link()
    link.accept([0])
    link.send(world(box))
    link.wait_line(0, "up")
    numbers = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    (pid,) = [pid for pid in numbers if _is_forward(pid, sshd.port)]
    os.kill(pid, signal.SIGKILL)
    assert running.wait() == 1
    assert "cannot open a forward through" in running.said()
    wait_gone("join-ssh-mark")


def _is_forward(pid: int, port: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return words[0].endswith(b"ssh") and b"-N" in words and str(port).encode() in words
