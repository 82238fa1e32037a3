"""What becomes of a command whose stdout or stderr cannot be written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")
LONG = "print('line\\n' * 100_000)"  # more than any buffer holds


def run(body: str, out: int | None = None, err: int = subprocess.PIPE, options: str = "", as_json: bool = False) -> str:
    """Run `body` as a command's main; its exit code, and what stands on stderr."""
    program = (
        "import argparse, os, sys\nfrom flodl_wire import faults, outlets\n"
        f"def main():\n    {body}\n"
        f"sys.exit(faults.guarded('x', main, as_json={as_json}))"
    )
    argv = [sys.executable, *options.split(), "-c", program]
    done = subprocess.run(argv, stdout=out, stderr=err, text=True, check=False, timeout=30)
    return f"{done.returncode} {done.stderr or ''}".strip()


def without_reader(body: str, options: str = "") -> str:
    """The same with a stdout that nobody reads any more."""
    read, write = os.pipe()
    os.close(read)
    try:
        return run(body, write, options=options)
    finally:
        os.close(write)


def full(body: str, options: str = "", as_json: bool = False) -> str:
    """The same with a stdout on a full disk."""
    with FULL.open("wb") as out:
        return run(body, out.fileno(), options=options, as_json=as_json)


CANNOT = "x: cannot write the output: No space left on device"
DONE = "x: its work is done, but its output could not be written: No space left on device"


@pytest.mark.parametrize("said", ["print('a result')", "print('a result', flush=True)", LONG])
@pytest.mark.parametrize("options", ["", "-u"])
def test_a_reader_that_went_away_is_no_error(said: str, options: str) -> None:
    assert without_reader(f"{said}; return 0", options) == "0"
    assert without_reader(f"{said}; return 7", options) == "7", "nor does it hide what the command has to say"


@needs_full
@pytest.mark.parametrize("said", ["print('a result')", "print('a result', flush=True)", LONG])
@pytest.mark.parametrize("options", ["", "-u"])
def test_on_a_full_disk_a_command_that_only_tells_has_failed(said: str, options: str) -> None:
    assert full(f"{said}; return 0", options) == f"1 {CANNOT}"
    assert full(f"{said}; return 7", options) == f"7 {CANNOT}"


@needs_full
def test_on_a_full_disk_work_that_is_done_stays_done() -> None:
    assert full("outlets.work_is_done(); print('told'); return 0") == f"0 {DONE}"
    assert full("outlets.work_is_done(); print('told'); return 1") == f"1 {CANNOT}"


@needs_full
def test_what_is_lost_on_the_way_stops_no_work(tmp_path: Path) -> None:
    body = f"{LONG}; open({str(tmp_path / 'made')!r}, 'w').close(); outlets.work_is_done(); return 0"
    assert full(body) == f"0 {DONE}" and (tmp_path / "made").exists()
    (tmp_path / "made").unlink()
    assert without_reader(body) == "0" and (tmp_path / "made").exists()


@needs_full
@pytest.mark.parametrize("as_json", [False, True])
def test_a_fault_is_told_whatever_became_of_stdout(as_json: bool) -> None:
    fault = "raise faults.Refused('c', 'cannot', 'why', 'fix')"
    assert full(fault, as_json=as_json) == "1 x: cannot: why\nfix: fix"


@needs_full
def test_a_disk_that_is_full_elsewhere_is_the_commands_own_failure() -> None:
    body = "print('before'); f = open('/dev/full', 'w', buffering=1); f.write('x\\n')"
    assert run(body, subprocess.DEVNULL).startswith("1 x: cannot go on: No space left on device")
    body = "print('before'); r, w = os.pipe(); os.close(r); os.write(w, b'x')"
    assert run(body, subprocess.DEVNULL) == "1 x: cannot go on: Broken pipe"


@needs_full
def test_a_person_who_cannot_be_told_costs_the_words_only() -> None:
    with FULL.open("wb") as err:
        told = "print('note', file=sys.stderr, flush=True); return 0"
        assert run(told, subprocess.DEVNULL, err.fileno()) == "0"
        assert run("raise faults.Refused('c', 'cannot')", subprocess.DEVNULL, err.fileno()) == "1"


@pytest.mark.parametrize(("words", "code"), [("['--help']", 0), ("['--none']", 2)])
def test_argparse_leaves_the_same_way(words: str, code: int) -> None:
    ended = without_reader(f"argparse.ArgumentParser(prog='p').parse_args({words})")
    assert ended.startswith(str(code)) and "Traceback" not in ended


@needs_full
def test_help_that_is_lost_has_not_been_given() -> None:
    assert full("argparse.ArgumentParser(prog='p').parse_args(['--help'])") == f"1 {CANNOT}"


def test_behind_a_command_nobody_speaks_of_its_output_any_more() -> None:
    program = (
        "import os, sys; from flodl_wire import faults, outlets\n"
        "faults.guarded('x', lambda: print('told', flush=True) or 0)\n"
        "sys.stderr.write(str(outlets.reader_left()))"
    )
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([sys.executable, "-c", program], stdout=write, stderr=subprocess.PIPE, text=True, check=True)
    os.close(write)
    assert done.stderr == "False"


def test_an_output_without_end_hears_that_its_reader_left() -> None:
    body = "\n    ".join(["while not outlets.reader_left():", "    print('again', flush=True)", "return 0"])
    assert without_reader(body) == "0"


def test_the_streams_stay_what_they_were_and_go_back_where_they_were() -> None:
    program = (
        "import sys; from flodl_wire import faults\n"
        "sys.stdout.reconfigure(encoding='ascii', errors='backslashreplace')\n"
        "before = sys.stdout, sys.stderr\n"
        "print('first')\n"
        "faults.guarded('x', lambda: print('\u2603', sys.stdout.fileno(), sys.stdout.isatty()) or 0)\n"
        "assert before == (sys.stdout, sys.stderr)\n"
        "print('last')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "first\n\\u2603 1 False\nlast\n"


def test_a_child_writes_where_its_parent_writes() -> None:
    program = (
        "import subprocess, sys; from flodl_wire import faults\n"
        "faults.guarded('x', lambda: subprocess.run(['echo', 'child'], stdout=sys.stdout).returncode)"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"child\n"
