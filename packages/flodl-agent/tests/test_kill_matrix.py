"""Who is killed, stopped or cut off, and what is left of the run on this host: nothing. Bystanders live on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_fakes import Box, FakeLink, FakeWindow, Running, alive, formed, wait_gone, wait_until

from flodl_wire import environ
from flodl_wire.join_messages import Abort, Beat, Bye, HostFault, RankExited, RelayExited, Step

# A rank as users write them: it starts a shell that starts a process, one with a session of its own, and an orphan.
# Each announces itself, so that the test knows that all of them are there.
RANK = """
import os, subprocess, sys, time
subprocess.Popen(["sh", "-c", "sleep 601 & echo sh child; wait"])
own_session = "import os, time\\nos.setsid()\\nprint('own session', flush=True)\\ntime.sleep(602)"
subprocess.Popen([sys.executable, "-c", own_session])
subprocess.Popen(["sh", "-c", "setsid sh -c 'echo orphan; exec sleep 603' & exit 0"])
print("rank", flush=True)
time.sleep(600)
"""

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def mark(request: pytest.FixtureRequest) -> str:
    return f"kill-mark-{os.getpid()}-{abs(hash(request.node.name))}"


@pytest.fixture
def bystander(mark: str) -> Iterator[subprocess.Popen[bytes]]:
    """The user's own process, of the same name as one of the run's."""
    process = subprocess.Popen(["sleep", "601"])
    yield process
    assert process.poll() is None, "a bystander was killed"
    process.kill()
    process.wait()


class Run:
    """One host with two such ranks and a relay, all of it up."""

    def __init__(self, window: FakeWindow, box: Box, mark: str) -> None:
        self.mark = mark
        self.agent: Running = box.agent(window.spec(ranks=2, path=str(box.project)), MARK=mark)
        self.link: FakeLink = window.link()
        self.link.accept([0, 1])
        self.link.send(formed(["python", "-c", RANK], box.project, [0, 1]))
        self.link.wait_line(None, "relay of node-a")
        for rank in (0, 1):
            for line in ("rank", "sh child", "own session", "orphan"):
                self.link.wait_line(rank, line)
        assert len(alive(mark)) >= 12

    def pid(self, what: str) -> int:
        """Of the one process whose command line holds `what`."""
        found = [pid for pid in alive(self.mark) if what.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
        return found[0]

    def kill(self, what: str, number: int) -> None:
        os.kill(self.pid(what), number)

    def beats_on(self) -> None:
        """Until the agent has beaten for half as long again as a keeper may be silent; each beat is a tenth of that."""
        already = len(self.link.all(Beat))
        self.link.wait(
            lambda: sum(isinstance(heard, Beat) for heard in self.link.heard) >= already + 15 or None, "beats"
        )


@pytest.fixture
def run(window: FakeWindow, box: Box, mark: str, bystander: subprocess.Popen[bytes]) -> Run:
    return Run(window, box, mark)


def test_an_abort_reaches_own_sessions_and_orphans(run: Run) -> None:
    run.link.send(Abort("over"))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []
    assert all(exited.ordered for exited in run.link.all(RankExited)) and len(run.link.all(RankExited)) == 2


def test_an_agent_that_is_killed_leaves_nothing(run: Run) -> None:
    run.agent.process.kill()
    run.link.wait_end()
    wait_gone(run.mark)


def test_an_agent_that_is_stopped_is_killed_by_its_keeper_with_all_the_rest(run: Run) -> None:
    run.agent.process.send_signal(signal.SIGSTOP)
    run.link.wait_end()
    assert run.agent.wait() == -signal.SIGKILL
    wait_gone(run.mark)


def test_a_keeper_that_is_killed_leaves_nothing_and_the_agent_says_so(run: Run) -> None:
    run.kill("keeper.py", signal.SIGKILL)
    assert run.link.wait_for(HostFault).what == "the keeper of node-a was killed"
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_keeper_that_is_stopped_does_not_save_the_ranks(
    run: Run,
) -> None:
    run.kill("keeper.py", signal.SIGSTOP)
    run.link.send(Abort("over", grace_s=0.0))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_keeper_that_stands_still_ends_the_host_and_the_agent_says_so(run: Run) -> None:
    run.kill("keeper.py", signal.SIGSTOP)
    fault = run.link.wait_for(HostFault)
    assert (fault.code, fault.what) == ("keeper-silent", "the keeper of node-a stands still")
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_keeper_that_stands_still_whatever_is_done_is_killed_with_all_the_rest(run: Run) -> None:
    keeper = run.pid("keeper.py")
    enough = threading.Event()

    def insist() -> None:
        with contextlib.suppress(ProcessLookupError):
            while not enough.wait(0.002):
                os.kill(keeper, signal.SIGSTOP)

    stopping = threading.Thread(target=insist)
    stopping.start()
    try:
        run.link.wait_for(HostFault)
        run.link.answer_bye()
        assert run.agent.wait() == 1
    finally:
        enough.set()
        stopping.join()
    assert alive(run.mark) == []


def test_a_keeper_that_stood_still_for_a_moment_goes_on(run: Run) -> None:
    run.kill("keeper.py", signal.SIGSTOP)
    threading.Event().wait(0.2)  # plays a keeper that stands still, for a fifth of the second that it has
    run.kill("keeper.py", signal.SIGCONT)
    run.beats_on()
    assert run.link.all(HostFault) == []
    run.link.send(Abort("over"))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_an_agent_and_its_keeper_that_stood_still_together_go_on(run: Run) -> None:
    """As in a frozen container, or on a laptop that slept."""
    run.kill("keeper.py", signal.SIGSTOP)
    run.agent.process.send_signal(signal.SIGSTOP)
    threading.Event().wait(1.5)  # plays a box that stands still, for longer than either waits for the other
    run.kill("keeper.py", signal.SIGCONT)
    run.agent.process.send_signal(signal.SIGCONT)
    run.beats_on()
    assert run.agent.process.poll() is None and run.link.all(HostFault) == []
    run.link.send(Abort("over"))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_an_agent_that_is_killed_wakes_a_keeper_that_stands_still(run: Run) -> None:
    run.agent.process.send_signal(signal.SIGSTOP)
    run.kill("keeper.py", signal.SIGSTOP)
    run.agent.process.kill()
    wait_gone(run.mark)


def test_an_agent_that_is_stopped_at_its_goodbye_is_still_watched_by_its_keeper(run: Run) -> None:
    run.link.holds_open = True  # else it might let go of its keeper before it is stopped
    run.link.send(Abort("over"))
    run.link.wait_for(Bye)
    run.agent.process.send_signal(signal.SIGSTOP)
    assert run.agent.wait() == -signal.SIGKILL
    wait_gone(run.mark)


def test_the_end_of_the_agent_s_stdin_ends_everything_and_names_it(run: Run) -> None:
    run.agent.close_stdin()
    assert run.link.wait_for(HostFault).code == "stdin-closed"
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_closed_link_ends_everything(run: Run) -> None:
    run.link.close()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []
    assert "lost the link to 127.0.0.1:" in run.agent.said()


def test_a_silent_controller_is_a_lost_one(run: Run) -> None:
    run.link.silent = True
    assert run.agent.wait() == 1
    assert alive(run.mark) == []
    assert "no beat for 2 s" in run.agent.said()


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_a_signal_to_the_agent_ends_everything_and_is_named(run: Run, name: str) -> None:
    run.agent.process.send_signal(getattr(signal, name))
    fault = run.link.wait_for(HostFault)
    assert (fault.code, fault.why) == ("signalled", f"it got {name}")
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_relay_that_is_killed_is_told_at_once_and_ends_the_host(run: Run) -> None:
    run.kill("flodl-planes", signal.SIGKILL)
    assert run.link.wait_for(RelayExited).signal == signal.SIGKILL
    assert run.link.wait_for(HostFault).code == "relay-died"
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_relay_that_is_stopped_behind_the_training_is_ended_and_its_ranks_are_left_alone(run: Run) -> None:
    ranks = [pid for pid in alive(run.mark) if b"time.sleep(600)" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    run.kill("flodl-planes", signal.SIGSTOP)
    run.link.trained = True
    exited = run.link.wait_for(RelayExited)
    assert exited.signal == signal.SIGKILL and 2.0 < exited.stood_still_s < 4.0
    threading.Event().wait(3.0)  # plays long work behind the training
    assert run.link.all(HostFault) == [] == run.link.all(RankExited) and {*ranks} <= {*alive(run.mark)}
    run.link.send(Abort("enough"))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


class Forked:
    """Two ranks that are forked, or about to be: their torch is a stand-in, which says that it loads and then does
    what `loading` says where it stands for both.
    """

    def __init__(self, window: FakeWindow, box: Box, mark: str, loading: str) -> None:
        self.mark = mark
        installed = box.root / "installed" / "torch"
        installed.mkdir(parents=True)
        once = f"import os, time\nif {environ.LOCAL_RANK!r} not in os.environ:\n    print('loading', flush=True)\n"
        (installed / "__init__.py").write_text(f"{once}    {loading}")
        (box.project / "train.py").write_text("import torch, time\nprint('trains', flush=True)\ntime.sleep(600)")
        self.agent = box.agent(window.spec(ranks=2, path=str(box.project)), MARK=mark)
        self.link = window.link()
        self.link.accept([0, 1])
        env = {"PYTHONPATH": str(installed.parent)}
        self.link.send(formed(["python", "train.py"], box.project, [0, 1], env=env))
        self.link.wait_line(0, "loading")

    def pids(self, beginning: bytes) -> list[int]:
        return [pid for pid in alive(self.mark) if Path(f"/proc/{pid}/cmdline").read_bytes().startswith(beginning)]

    def end(self) -> None:
        self.link.send(Abort("enough"))
        self.link.answer_bye()
        assert self.agent.wait() == 1
        assert alive(self.mark) == []


def test_a_fork_server_that_is_killed_costs_time_and_not_the_run(window: FakeWindow, box: Box, mark: str) -> None:
    run = Forked(window, box, mark, "time.sleep(600)")
    (server,) = run.pids(b"python\0/")
    os.kill(server, signal.SIGKILL)
    for rank in (0, 1):
        run.link.wait_line(rank, "trains")
    assert [step.text for step in run.link.all(Step)] == [
        "relay started",
        "importing torch, once for all ranks of this host",
        "every rank imports for itself: the fork server gave up (it was killed by signal 9)",
        "rank 0 started",
        "rank 1 started",
    ]
    run.end()


def test_an_abort_ends_a_fork_server_that_still_loads(window: FakeWindow, box: Box, mark: str) -> None:
    Forked(window, box, mark, "time.sleep(600)").end()


def test_a_forked_rank_that_is_killed_is_told_like_any_other(window: FakeWindow, box: Box, mark: str) -> None:
    run = Forked(window, box, mark, "pass")
    for rank in (0, 1):
        run.link.wait_line(rank, "trains")
    os.kill(min(run.pids(b"python\0train.py")), signal.SIGKILL)
    exited = run.link.wait_for(RankExited)
    assert (exited.signal, exited.code, exited.ordered, exited.out_of_memory) == (signal.SIGKILL, None, False, False)
    assert len(run.pids(b"python\0train.py")) == 1 and run.pids(b"python\0/") == []
    run.end()


def test_a_killed_rank_is_told_and_the_others_live_on_without_its_leftovers(run: Run) -> None:
    victims = [pid for pid in alive(run.mark) if b"time.sleep(600)" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    before = len(alive(run.mark))
    os.kill(min(victims), signal.SIGKILL)
    exited = run.link.wait_for(RankExited)
    assert (exited.signal, exited.code, exited.ordered, exited.out_of_memory) == (signal.SIGKILL, None, False, False)
    assert exited.tail
    # of its session: the shell and its sleep; those that left the session are left until the run's end
    wait_until(lambda: len(alive(run.mark)) <= before - 3 or None, "its leftovers ended")
    assert len([pid for pid in alive(run.mark) if b"time.sleep(600)" in Path(f"/proc/{pid}/cmdline").read_bytes()]) == 1
    run.link.send(Abort("enough"))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_rank_that_is_stopped_behind_its_training_is_ended_with_what_it_started_and_the_other_lives_on(
    run: Run,
) -> None:
    ranks = [pid for pid in alive(run.mark) if b"time.sleep(600)" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    before = len(alive(run.mark))
    os.kill(min(ranks), signal.SIGSTOP)
    threading.Event().wait(3.0)  # plays a training in which it is waited for longer than the 2 s that it will have
    assert run.link.all(RankExited) == []
    run.link.trained = True
    exited = run.link.wait_for(RankExited)
    assert (exited.signal, exited.ordered, exited.out_of_memory) == (signal.SIGKILL, False, False)
    assert 2.0 < exited.stood_still_s < 4.0
    wait_until(lambda: len(alive(run.mark)) <= before - 3 or None, "its session ended")
    threading.Event().wait(3.0)  # plays long work behind the training
    assert len(run.link.all(RankExited)) == 1 and max(ranks) in alive(run.mark), "it only takes its time"
    run.link.send(Abort("enough"))
    run.link.answer_bye()
    assert run.agent.wait() == 1
    assert alive(run.mark) == []


def test_a_rank_that_ignores_term_is_killed_after_the_grace(window: FakeWindow, box: Box, mark: str) -> None:
    stubborn = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    )
    agent = box.agent(window.spec(path=str(box.project)), MARK=mark)
    link = window.link()
    link.accept([0])
    link.send(formed(["python", "-c", stubborn], box.project, relay=False))
    link.wait_line(0, "up")
    link.send(Abort("over"))
    assert link.wait_for(RankExited).signal == signal.SIGKILL
    link.answer_bye()
    assert agent.wait() == 1
    assert alive(mark) == []


def test_ranks_that_end_by_themselves_leave_no_daemons_behind(window: FakeWindow, box: Box, mark: str) -> None:
    agent = box.agent(window.spec(path=str(box.project)), MARK=mark)
    link = window.link()
    link.accept([0])
    link.send(formed(["sh", "-c", "setsid sleep 600 & echo done"], box.project, relay=False))
    exited = link.wait_for(RankExited)
    assert (exited.code, exited.tail) == (0, ["done"])
    link.answer_bye()
    assert agent.wait() == 0
    assert alive(mark) == []


def test_the_kernel_s_out_of_memory_killer_is_recognised_by_its_own_counter() -> None:
    from flodl_agent.oom import counter_files, read_count

    assert counter_files("0::/user.slice/run\n")[0] == "/sys/fs/cgroup/user.slice/run/memory.events"
    assert counter_files("4:memory:/jobs\n0::/\n")[0] == "/sys/fs/cgroup/memory/jobs/memory.oom_control"
    assert counter_files("")[-1] == "/proc/vmstat"
    assert read_count("low 0\noom 3\noom_kill 2\noom_group_kill 0\n") == 2
    assert read_count("oom_kill_disable 0\nunder_oom 0\noom_kill 0\n") == 0 and read_count("nothing") is None
