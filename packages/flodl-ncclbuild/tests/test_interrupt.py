"""What Ctrl-C, TERM and a closed terminal leave: no process, no folder, no half library; only the log."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ncclbuild_box import Box

from flodl_ncclbuild import child

VERSION = "NCCL_MAJOR := 2\nNCCL_MINOR := 27\nNCCL_PATCH := 5\n"
# A stand-in tree whose compiler tells its pid and never ends; it runs below make and a shell, as nvcc does.
MAKEFILE = """
src.build:
\tmkdir -p $(BUILDDIR)/lib; echo half > $(BUILDDIR)/lib/libnccl.so.2; \\
\tsh -c 'echo $$$$ > {fifo}; {trap} exec cat {never}'; echo ended
"""


def gone(pid: int, seconds: float = 20) -> bool:
    """Waits for the end of a process that is not a child of ours."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], seconds)[0])
    finally:
        os.close(descriptor)


def blocked_tree(folder: Path, trap: str = "") -> tuple[Path, Path, Path]:
    """(tree, fifo for the compiler's pid, a fifo that nobody ever writes)"""
    tree, fifo, never = folder / "tree", folder / "pid", folder / "never"
    (tree / "makefiles").mkdir(parents=True)
    (tree / "makefiles" / "version.mk").write_text(VERSION)
    for pipe in (fifo, never):
        os.mkfifo(pipe)
    (tree / "Makefile").write_text(MAKEFILE.format(fifo=fifo, never=never, trap=trap))
    return tree, fifo, never


def began(box: Box, tree: Path, fifo: Path) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen(
        box.command("build", "--native", "--source", str(tree), "--archs", "9.0"),
        cwd=box.project,
        env={**box.environment, "CUDA_HOME": str(box.toolkit())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return process, int(fifo.read_text())  # comes when the compiler runs


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_make_and_what_runs_below_it(box: Box, tmp_path: Path, number: signal.Signals) -> None:
    tree, fifo, _ = blocked_tree(tmp_path)
    process, compiler = began(box, tree, fifo)
    assert (box.builds / ".v2.27.5-sm90.part").is_dir()
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == ""
    assert f"libnccl.so.2 was not touched; log: {box.builds}/v2.27.5-sm90.log" in err
    assert "Traceback" not in err
    assert gone(compiler)
    assert [path.name for path in box.builds.iterdir()] == ["v2.27.5-sm90.log"]


def test_a_compiler_that_ignores_term_is_killed_after_the_grace(box: Box, tmp_path: Path) -> None:
    tree, fifo, _ = blocked_tree(tmp_path, trap='trap "" TERM;')
    process, compiler = began(box, tree, fifo)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert gone(compiler)


def test_a_library_that_was_there_stays_as_it_was(box: Box, tmp_path: Path) -> None:
    former = box.builds / "v2.27.5-sm90" / "lib" / "libnccl.so.2"
    former.parent.mkdir(parents=True)
    former.write_text("the former one")
    tree, fifo, _ = blocked_tree(tmp_path)
    process, _ = began(box, tree, fifo)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert former.read_text() == "the former one"


def test_after_a_killed_tool_its_compiler_keeps_the_next_build_off(box: Box, tmp_path: Path) -> None:
    tree, fifo, never = blocked_tree(tmp_path)
    process, compiler = began(box, tree, fifo)
    process.kill()
    process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    words = ("build", "--native", "--source", str(tree), "--archs", "9.0")
    answer = box.run(*words, CUDA_HOME=str(box.toolkit()))
    assert answer.returncode == 1
    assert "another build of it is running" in answer.stderr
    never.write_text("end")  # the compiler reads an end of file
    assert gone(compiler)


def test_a_container_is_removed_by_its_name(box: Box, tmp_path: Path) -> None:
    """The stand-in engine's `run` never ends; what it was asked afterwards is recorded."""
    tree, fifo, never = blocked_tree(tmp_path)
    box.stand_in(
        "docker",
        f"""
if words[0] == "info": print("28.2.2 []")
if words[0] == "run":
    Path({str(fifo)!r}).write_text(str(os.getpid()))
    Path({str(never)!r}).read_text()
""",
    )
    process = subprocess.Popen(
        box.command("build", "--source", str(tree), "--archs", "9.0"),
        cwd=box.project,
        env=box.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    client = int(fifo.read_text())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert gone(client)
    run = next(line for line in box.recorded("docker") if line[0] == "run")
    assert box.recorded("docker")[-1] == ["rm", "--force", run[run.index("--name") + 1]]


def test_a_signal_while_a_program_is_being_started_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def signalled(*words: Any, **more: Any) -> subprocess.Popen[bytes]:
        started.append(start(*words, **more))
        os.kill(os.getpid(), signal.SIGTERM)
        return started[0]

    monkeypatch.setattr(subprocess, "Popen", signalled)
    with (tmp_path / "log").open("wb") as log, child.signals_as_interrupts(), pytest.raises(KeyboardInterrupt):
        child.run(["sleep", "1000"], log, dict(os.environ), print)
    assert started[0].returncode == -signal.SIGTERM
