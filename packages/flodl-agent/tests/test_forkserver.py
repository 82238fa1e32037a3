"""What a forked rank is like: an executed one. Against the real keeper; torch is a stand-in of a few lines."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import PATIENCE, alive, wait_gone, wait_until

from flodl_agent import keeper
from flodl_agent.preload import Preload
from flodl_agent.python_command import read_command

pytestmark = pytest.mark.timeout(60)
TIMES = {"silence_s": 20 * PATIENCE, "standstill_s": 20 * PATIENCE, "grace_s": 1.0}

# Says who imported it, and does what a test asks of the fork server (which has no rank's own variables).
TORCH = """
import os, sys, threading, time
PID = os.getpid()
if "ONE" not in os.environ:
    print("imported", flush=True)
    exec(os.environ.get("MISHAP", ""))
"""

SHOW = """
'''A script.'''
import json, os, signal, sys, torch
def scrub(value):
    return [repr(type(value)), repr(value) if isinstance(value, (str, type(None), dict)) else ""]
told = {
    "fds": sorted(os.readlink(f"/proc/self/fd/{fd}").partition(":")[0][-5:]
                  for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "argv": sys.argv, "orig_argv": sys.orig_argv, "path": sys.path, "flags": repr(sys.flags), "cwd": os.getcwd(),
    "main": {name: scrub(value) for name, value in globals().items() if name != "told"},
    "is_main": sys.modules["__main__"].__dict__ is globals(), "loader": __loader__.name if __loader__ else "",
    "env": dict(os.environ), "c_env": os.popen("env | grep ^ONE").read(), "executable": sys.executable,
    "session": os.getsid(0) == os.getpid(), "group": os.getpgid(0) == os.getpid(),
    "parent": open(f"/proc/{os.getppid()}/cmdline").read(),
    "signals": [str(signal.getsignal(number)) for number in signal.valid_signals()],
    "cmdline": open("/proc/self/cmdline").read().rstrip("\\0"), "comm": open("/proc/self/comm").read(),
    "buffered": [sys.stdout.line_buffering, sys.stdout.write_through, sys.stdout.seekable()],
    "gc": __import__("gc").isenabled(),
}
print(json.dumps({"told": told, "forked": torch.PID != os.getpid()}))
"""


@dataclass
class Kept:
    """What came of one keeper and its ranks."""

    reports: list[dict[str, Any]]
    out: list[str]
    err: list[str]

    def ends(self) -> list[tuple[str, int]]:
        """(code or signal, number) of every rank, in rank order."""
        exits = sorted((each for each in self.reports if "exited" in each), key=lambda each: str(each["exited"]))
        return [("code", each["code"]) if "code" in each else ("signal", each["signal"]) for each in exits]

    def notes(self) -> list[str]:
        return [str(each["note"]) for each in self.reports if "note" in each]


class Workshop:
    """A project folder, a stand-in for torch, and keepers."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.project = root / "project"
        self.project.mkdir()
        installed = root / "installed"
        (installed / "torch").mkdir(parents=True)
        (installed / "torch" / "__init__.py").write_text(TORCH)
        self.env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(installed)}
        self.mark = f"fork-mark-{os.getpid()}-{root.name}"
        self.keepers: list[subprocess.Popen[bytes]] = []

    def write(self, name: str, text: str) -> None:
        path = self.project / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def start(self, argv: list[str], *, fork: bool = True, patience: float = PATIENCE, **env: str) -> list[Path]:
        """A keeper with two ranks that run `argv`; the files their outputs go to, out and err in turn."""
        command = read_command(argv)
        assert command
        order = Preload(command, ("torch",), patience).order() if fork else None
        files, children = [], []
        for rank in range(2):
            paths = [self.root / f"{len(self.keepers)}-{rank}.{stream}" for stream in ("out", "err")]
            files += paths
            rank_env = {**self.env, "MARK": self.mark, "ONE": f"rank {rank}", **env}
            child = {"name": f"rank {rank}", "argv": argv, "env": rank_env, "cwd": str(self.project), "fork": True}
            children.append((child, paths))
        with contextlib.ExitStack() as stack:
            opened = [stack.enter_context(path.open("ab")).fileno() for path in files]
            plan = [
                {**child, "out": opened[2 * rank], "err": opened[2 * rank + 1]}
                for rank, (child, _) in enumerate(children)
            ]
            self.keepers.append(
                subprocess.Popen(
                    [sys.executable, "-I", "-S", keeper.__file__],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=opened, start_new_session=True, cwd="/",
                )
            )  # fmt: skip
        whole = {**TIMES, "run_dir": str(self.root / "run"), "children": plan}
        stdin = self.keepers[-1].stdin
        assert stdin
        stdin.write(json.dumps({"plan": {**whole, "fork": order}}).encode() + b"\n")
        stdin.flush()
        return files

    def run(self, argv: list[str], **how: Any) -> Kept:
        files = self.start(argv, **how)
        return self.finish(files)

    def finish(self, files: list[Path]) -> Kept:
        stdout = self.keepers[-1].stdout
        assert stdout
        stdin = self.keepers[-1].stdin
        assert stdin
        reports = []
        while (line := stdout.readline()) and (report := json.loads(line)) != {"over": 1}:
            reports.append(report)
        stdin.close()
        assert self.keepers[-1].wait(PATIENCE) == 0
        return Kept(reports, [path.read_text() for path in files[::2]], [path.read_text() for path in files[1::2]])

    def close(self) -> None:
        for process in self.keepers:
            assert process.stdin and process.stdout
            process.stdin.close()
            process.wait(PATIENCE)
            process.stdout.close()


@pytest.fixture
def workshop(tmp_path: Path) -> Iterator[Workshop]:
    made = Workshop(tmp_path)
    yield made
    made.close()


def told(kept: Kept, forked: bool) -> list[dict[str, Any]]:
    found = [json.loads(out.splitlines()[-1]) for out in kept.out]
    assert [each["forked"] for each in found] == [forked, forked], kept
    assert kept.ends() == [("code", 0)] * 2
    return [each["told"] for each in found]


@pytest.mark.parametrize(
    "argv",
    [
        ["python", "-u", "-O", "-W", "error", "./train.py", "two words", "", "gör 🙂", "-m", "a\nb"],
        ["python", "-X", "dev", "-m", "pkg.train", "x", "--y"],
        pytest.param(
            ["python3", "-P", "train.py"],
            marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="-P is of Python 3.11"),
        ),
    ],
)
def test_a_forked_rank_cannot_tell_itself_from_an_executed_one(workshop: Workshop, argv: list[str]) -> None:
    workshop.write("train.py", SHOW)
    workshop.write("pkg/__init__.py", "")
    workshop.write("pkg/train.py", SHOW)
    for locale in ("C", "C.UTF-8") if "-u" in argv else ("C",):
        executed = told(workshop.run(argv, fork=False, LC_ALL=locale), False)
        for one, other in zip(told(workshop.run(argv, LC_ALL=locale), True), executed, strict=True):
            assert {name: (one[name], other[name]) for name in one if one[name] != other[name]} == {}, locale


def test_a_python_that_is_a_script_around_the_real_one_is_reproduced_too(workshop: Workshop) -> None:
    shims = workshop.root / "shims"
    shims.mkdir()
    real = Path(sys.executable)
    (shims / "python").write_text(f'#!/bin/sh\nexport ADDED=yes\nexec "{real}" -B "$@"\n')
    (shims / "python").chmod(0o755)
    workshop.env["PATH"] = f"{shims}:{workshop.env['PATH']}"
    workshop.write("train.py", SHOW)
    executed = told(workshop.run(["python", "train.py", "a"], fork=False), False)
    forked = told(workshop.run(["python", "train.py", "a"]), True)
    assert forked == executed and forked[0]["env"]["ADDED"] == "yes"
    assert forked[0]["orig_argv"] == [str(real), "-B", "train.py", "a"]


ENDS = {
    "raise": ("code", 1), "exit": ("code", 3), "say": ("code", 1), "interrupt": ("signal", 2), "kill": ("signal", 9),
    "hook": ("code", 1), "leave": ("code", 0),
}  # fmt: skip
END = """
import atexit, os, sys, signal, threading, torch
atexit.register(print, "atexit")
threading.Timer(0.05, print, ["thread"]).start()
def fail():
    raise ValueError("deep") from KeyError("cause")
how = sys.argv[1]
if how == "raise": fail()
if how == "exit": sys.exit(3)
if how == "say": sys.exit("a sentence")
if how == "interrupt": os.kill(os.getpid(), signal.SIGINT); signal.pause()
if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
if how == "hook":
    sys.excepthook = lambda kind, error, trace: print("hooked", trace.tb_frame.f_code.co_name, trace.tb_next.tb_lineno)
    fail()
"""


@pytest.mark.parametrize("how", ENDS)
def test_it_ends_as_an_executed_one_does_with_the_same_last_words(workshop: Workshop, how: str) -> None:
    workshop.write("train.py", END)
    executed = workshop.run(["python", "train.py", how], fork=False)
    forked = workshop.run(["python", "train.py", how])
    assert forked.ends() == executed.ends() == [ENDS[how]] * 2
    assert forked.err == executed.err
    assert [forked.out[0].replace("imported\n", "", 1), forked.out[1]] == executed.out
    assert len(forked.notes()) == 1


MISHAPS = {
    "raise RuntimeError('no such\\nlibrary')": "no such library",
    "sys.exit(4)": "4",
    "os._exit(4)": "it ended with exit 4",
    "os.kill(PID, 9)": "it was killed by signal 9",
    "os.kill(PID, 19)": "it took longer than 0.5 s",
    "threading.Thread(target=time.sleep, args=(9,), daemon=True).start()": "the imports left 1 threads running, which",
    "sys.settrace(lambda *_: None)": "a debugger or profiler watches the interpreter",
    "import beside": "the project has a module beside of its own",
}


@pytest.mark.parametrize("mishap", MISHAPS)
def test_whatever_befalls_the_fork_server_the_ranks_are_executed_and_a_note_says_why(
    workshop: Workshop, mishap: str
) -> None:
    workshop.write("train.py", "import os, torch\nprint(torch.PID == os.getpid())")
    workshop.write("beside.py", "")
    kept = workshop.run(["python", "train.py"], patience=0.5 if "19" in mishap else PATIENCE, MISHAP=mishap)
    assert kept.ends() == [("code", 0)] * 2
    assert [out.splitlines()[-1] for out in kept.out] == ["True", "True"]
    assert len(kept.notes()) == 2 and f"gave up ({MISHAPS[mishap]}" in kept.notes()[1]
    assert [each["started"] for each in kept.reports if "started" in each] == ["rank 0", "rank 1"]


def test_a_fork_server_that_somebody_kills_is_no_loss(workshop: Workshop) -> None:
    workshop.write("train.py", "import os, torch\nprint(torch.PID == os.getpid())")
    files = workshop.start(["python", "train.py"], MISHAP="time.sleep(600)")
    wait_until(lambda: files[0].read_text() or None, "its import")
    (server,) = alive(workshop.mark)
    os.kill(server, signal.SIGKILL)
    kept = workshop.finish(files)
    assert kept.ends() == [("code", 0)] * 2 and "killed by signal 9" in kept.notes()[1]


@pytest.mark.parametrize("stage", ["importing", "running"])
@pytest.mark.parametrize("end", ["keeper killed", "agent gone"])
def test_nothing_is_left_of_it_or_its_ranks(workshop: Workshop, stage: str, end: str) -> None:
    workshop.write("train.py", "import torch, time\nprint('up', flush=True)\ntime.sleep(600)")
    files = workshop.start(["python", "train.py"], MISHAP="time.sleep(600)" if stage == "importing" else "")
    words = ("imported", "") if stage == "importing" else ("imported\nup\n", "up\n")
    there = list(zip(words, files[::2], strict=True))
    wait_until(lambda: all(word in file.read_text() for word, file in there) or None, stage)
    assert len(alive(workshop.mark)) == (1 if stage == "importing" else 2)  # the fork server goes when all are forked
    process = workshop.keepers[-1]
    assert process.stdin
    if end == "keeper killed":
        process.kill()
    else:
        process.stdin.close()
    wait_gone(workshop.mark)


def test_a_rank_may_spawn_workers_that_find_its_module_again(workshop: Workshop) -> None:
    workshop.write(
        "train.py",
        "import multiprocessing, os, random, torch\n"
        "def square(x): return x * x\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(square, [3]))\n"
        "    print(random.random())\n",
    )
    kept = workshop.run(["python", "train.py"])
    assert kept.ends() == [("code", 0)] * 2, kept
    (first, drawn), (second, other) = (out.replace("imported\n", "").splitlines() for out in kept.out)
    assert first == second == "[9]" and drawn != other
