"""The whole launcher process on real sockets, with a fan-out of agents and a hub that speak the wire."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from flodl_wire.result import RunResult
from flodl_wire.state import State

TESTS = Path(__file__).parent

LAUNCH = """
import sys
from flodl_window import siblings, cli_launch
from flodl_wire.faults import guarded
siblings.Tools.find = classmethod(lambda cls, fanout: cls([sys.executable, {hub!r}], [sys.executable, {fleet!r}]))
sys.exit(guarded("flodl-window", lambda: cli_launch.main(sys.argv[1:])))
""".format(hub=str(TESTS / "window_hub.py"), fleet=str(TESTS / "window_fleet.py"))


class Launched:
    """A launcher in a folder of its own."""

    def __init__(
        self, folder: Path, port: int, *, hosts: dict[str, str], fleet: dict[str, str], hub: str, words: list[str]
    ) -> None:
        self.folder, self.port = folder, port
        workers = [
            {"host": host, "local_devices": spec, "path": str(folder), "nccl_socket_ifname": "lo"}
            for host, spec in hosts.items()
        ]
        config = {
            "cluster": {"controller": {"host": "127.0.0.1", "port": port, "path": str(folder)}, "workers": workers}
        }
        (folder / "c.json").write_text(json.dumps(config))
        env = {**os.environ, "FAKE_FLEET": json.dumps(fleet), "FAKE_HUB": hub, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            [sys.executable, "-c", LAUNCH, "--config", "c.json", *words, "--", "python", "train.py"],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self.err: list[str] = []
        self._said = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._said:
                self.err.append(line.rstrip("\n"))
                self._said.notify_all()

    def until(self, words: str) -> str:
        """The first line on stderr that holds `words`."""
        with self._said:
            found = self._said.wait_for(lambda: next((line for line in self.err if words in line), None), 20)
        assert found, f"never said {words!r}: {self.err}"
        return str(found)

    def end(self) -> int:
        code = self.process.wait(30)
        self._reader.join(10)
        return code

    @property
    def out(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.read()

    @property
    def state(self) -> State:
        return msgspec.json.decode((self.folder / "runs/latest/state.json").read_bytes(), type=State)

    @property
    def result(self) -> RunResult:
        return msgspec.json.decode((self.folder / "runs/latest/result.json").read_bytes(), type=RunResult)

    def children(self) -> list[int]:
        return [
            int(word) for word in Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        ]


@pytest.fixture
def launch(tmp_path: Path, free_port: int) -> Iterator[Any]:
    made: list[Launched] = []

    def start(
        hosts: dict[str, str] | None = None, fleet: dict[str, str] | None = None, hub: str = "train", *words: str
    ) -> Launched:
        one = Launched(
            tmp_path,
            free_port,
            hosts=hosts or {"node-a": "cpu:2", "node-b": "cpu:1"},
            fleet=fleet or {},
            hub=hub,
            words=list(words),
        )
        made.append(one)
        return one

    yield start
    for one in made:
        if one.process.poll() is None:
            one.process.kill()
        one.process.wait()
        one._reader.join(5)
        for stream in (one.process.stdout, one.process.stderr):
            if stream is not None:
                stream.close()


def test_a_run_goes_from_the_window_to_done_and_tells_every_step(launch: Any) -> None:
    run = launch()
    assert run.end() == 0, run.err
    text = "\n".join(run.err)
    for words in (
        f"window open on 127.0.0.1:{run.port} for 3 ranks on node-a, node-b",
        "node-a is in: ranks 0-1 (2 × cpu)",
        "world formed: 3 ranks on 2 hosts, mode cpu_cadence",
        "rank 2 started",
        "ranks loading: 3 of 3 ready",
        "training: 3 ranks",
        "epoch 1/2: loss 0.5",
        "done: training finished",
        "accuracy 0.97",
        "files: runs/",
    ):
        assert words in text, words
    assert sorted(run.out.splitlines()) == [
        f"[{host}:{rank}] I am rank {rank} of 3 ☃" for host, rank in (("node-a", 0), ("node-a", 1), ("node-b", 2))
    ]
    assert (run.folder / "runs/latest/log/node-b-2.log").read_text(encoding="utf-8") == "I am rank 2 of 3 ☃\n"
    assert run.state.phase == "done" and [member.status for member in run.state.members] == ["left", "left"]
    assert (run.result.verdict, run.result.samples, run.result.degraded) == ("done", 200, False)
    assert run.state.afterthought is None
    left = {path.name for path in (run.folder / "runs/latest").iterdir()}
    assert {"events.jsonl", "history.json", "process.json", "report.html", "result.json", "state.json"} <= left


def test_the_verdict_is_served_a_little_longer(launch: Any) -> None:
    run = launch()
    run.until("files: runs/")
    with socket.create_connection(("127.0.0.1", run.port), 5) as link:
        link.sendall(b"GET / HTTP/1.1\r\n\r\n")
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["phase"] == "done"
    assert run.end() == 0


def test_a_failing_rank_is_named_with_its_last_lines(launch: Any) -> None:
    run = launch(fleet={"node-a": "hang", "node-b": "exit:3"}, hub="idle")
    assert run.end() == 1
    assert "flodl: FAILED: rank 2 on node-b exit 3" in run.err and any(
        "node-b:2 | ValueError: no" in line for line in run.err
    )
    assert f"flodl: more: fdl why {run.result.run}" in run.err
    assert run.state.cause is not None and run.state.cause.rank == 2
    assert run.state.afterthought is not None and run.state.afterthought.tries
    assert (run.result.verdict, run.result.world_size) == ("failed", 3)
    assert "the hub is gone" not in "\n".join(run.err), "what follows from the cause does not stand over it"
    assert "the hub is gone" in (run.folder / "runs/latest/log/node-a-relay.log").read_text()


def test_a_cut_link_is_named_with_the_end_of_its_agent(launch: Any) -> None:
    run = launch(fleet={"node-a": "hang", "node-b": "cut"}, hub="idle")
    assert run.end() == 1
    assert "FAILED: host node-b lost: its agent ended (killed by signal 9" in "\n".join(run.err)


def test_an_agent_that_cannot_get_in_fails_the_run_at_once_with_its_command(launch: Any) -> None:
    run = launch(fleet={"node-a": "mute", "node-b": "gone:255"})
    assert run.end() == 1
    text = "\n".join(run.err)
    assert "FAILED: host node-b could not join: its agent ended (exit 255): Permission denied (publickey)." in text
    assert "fix: the command was: fake agent for node-b" in text


def test_a_hub_that_fails_names_the_cause(launch: Any) -> None:
    run = launch(fleet={"node-a": "hang", "node-b": "hang"}, hub="fail")
    assert run.end() == 1
    assert "flodl: FAILED: the models differ: rank 1 has another layer" in run.err


def test_a_hub_that_crashes_is_the_coordinator_lost(launch: Any) -> None:
    run = launch(fleet={"node-a": "hang", "node-b": "hang"}, hub="crash")
    assert run.end() == 1
    text = "\n".join(run.err)
    assert "FAILED: coordinator lost: flodl-planes hub exit 7" in text and "hub | hub: something broke" in text


def test_a_result_larger_than_a_datagram_arrives_whole(launch: Any) -> None:
    run = launch(hub="large")
    assert run.end() == 0, run.err
    assert len(run.result.epochs) == 2000


def test_ctrl_c_ends_the_run_gracefully_with_130(launch: Any) -> None:
    run = launch(fleet={"node-a": "hang", "node-b": "hang"}, hub="idle")
    run.until("rank 2 started")
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    assert "flodl: FAILED: interrupted by SIGINT" in run.err and not any("Traceback" in line for line in run.err)


def test_a_second_ctrl_c_leaves_at_once(launch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "1")  # the last state is served for five seconds
    run = launch(fleet={"node-a": "mute", "node-b": "mute"}, hub="idle")
    run.until("window open")
    run.process.send_signal(signal.SIGTERM)
    run.until("once more")
    time.sleep(0.4)  # plays somebody who waits before pressing again
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130 and any("SIGINT: leaving at once" in line for line in run.err)


def test_what_is_sent_to_the_process_and_to_its_group_is_one_signal(launch: Any) -> None:
    """As `timeout` does, and a terminal that is closed."""
    run = launch(fleet={"node-a": "mute", "node-b": "mute"}, hub="idle")
    run.until("window open")
    run.process.send_signal(signal.SIGTERM)
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130
    assert sum("ending the run" in line for line in run.err) == 1, run.err
    assert not any("leaving at once" in line for line in run.err)


@pytest.mark.parametrize("signal_number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_is_left_when_the_launcher_dies(launch: Any, signal_number: signal.Signals) -> None:
    run = launch(fleet={"node-a": "hang", "node-b": "hang"}, hub="idle")
    run.until("rank 2 started")
    watched = [os.pidfd_open(pid) for pid in run.children()]
    assert len(watched) == 2, "hub and fan-out"
    run.process.send_signal(signal_number)
    run.end()
    import select

    for pidfd in watched:
        assert select.select([pidfd], [], [], 10)[0], "a child outlived the launcher"
        os.close(pidfd)


def test_a_taken_port_is_refused_by_the_name_of_its_holder(launch: Any) -> None:
    first = launch(fleet={"node-a": "mute", "node-b": "mute"}, hub="idle")
    first.until("window open")
    second = launch()
    assert second.end() == 1
    text = "\n".join(second.err)
    assert f"cannot listen on port {second.port}" in text and f"(pid {first.process.pid})" in text
    assert "Traceback" not in text


def test_a_folder_that_cannot_be_written_is_refused_before_anything_starts(launch: Any, tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("in the way")
    run = launch()
    assert run.end() == 1
    assert "cannot write the run's folder" in run.err[0] and len(run.err) == 2


def test_a_mode_that_cannot_be_is_refused_before_anything_starts(launch: Any, tmp_path: Path) -> None:
    run = launch({"node-a": "cpu:2", "node-b": [0]}, None, "train", "--mode", "nccl_cadence")
    assert run.end() == 1
    assert "fix: use cpu_cadence, which mixes them" in run.err and not (tmp_path / "runs").exists()


@pytest.mark.parametrize("mode", ["cpu_cadence", "torch"])
def test_a_checkpoint_that_is_not_there_is_refused_before_anything_starts(
    launch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """In mode torch checkpoints are the script's own affair."""
    monkeypatch.setenv("FLODL_RESUME", "20260101-000001-aaax")
    left = tmp_path / "runs/20260101-000001-aaaa/checkpoint.safetensors"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"of no use, but there")
    run = launch(None, {"node-a": "gone:1"}, "train", "--mode", mode)
    assert run.end() == 1
    if mode == "torch":
        assert any("window open" in line for line in run.err)
    else:
        why = f"there is no such file or folder, and no run of that name below {tmp_path}/runs"
        assert run.err == [
            f"flodl-window: cannot resume from 20260101-000001-aaax: {why}",
            "fix: did you mean 20260101-000001-aaaa?",
        ]
        assert [path.name for path in (tmp_path / "runs").iterdir()] == ["20260101-000001-aaaa"]


def test_the_next_run_starts_at_once_on_the_same_port(launch: Any) -> None:
    for _ in range(2):
        run = launch()
        assert run.end() == 0, run.err
