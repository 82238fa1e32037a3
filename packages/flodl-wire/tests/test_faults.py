"""What a person and a script see when something went wrong."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from flodl_wire import exits, faults
from flodl_wire.faults import Broken, Fault, Refused, Transient


def test_a_fault_reads_what_then_why_then_fix() -> None:
    fault = Refused("skew", "cannot admit node-b", "it runs rocm70, the cohort runs cu128", "use a cpu mode")
    assert str(fault) == "cannot admit node-b: it runs rocm70, the cohort runs cu128"
    assert fault.render() == "cannot admit node-b: it runs rocm70, the cohort runs cu128\nfix: use a cpu mode"
    assert str(Broken("x", "cannot go on")) == Broken("x", "cannot go on").render() == "cannot go on"


@pytest.mark.parametrize("kind", [Refused, Transient, Broken, Fault])
def test_a_fault_survives_the_wire_with_its_family(kind: type[Fault]) -> None:
    fault = kind("code", "what", "why", "fix")
    again = faults.from_dict(json.loads(json.dumps(fault.as_dict())))
    assert type(again) is kind
    assert again.as_dict() == fault.as_dict()


def test_a_fault_of_a_family_that_we_do_not_know_is_a_plain_fault() -> None:
    assert type(faults.from_dict({"family": "cosmic", "what": "cannot"})) is Fault


def test_text_of_another_host_cannot_drive_the_terminal() -> None:
    fault = Refused("x", "cannot admit \x1b[2Jnode", "bell\x07, \u202eback, \udcff", "line one\n\tline two")
    assert fault.render() == ("cannot admit \\x1b[2Jnode: bell\\x07, \\u202eback, \\udcff\nfix: line one\n\tline two")


def test_a_usage_fault_exits_two() -> None:
    assert faults.usage("cannot read --epochs").exit_code == exits.USAGE


def raising(error: BaseException) -> int:
    raise error


def test_guarded_prints_the_fault_on_stderr_and_the_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    fault = Refused("busy", "cannot bind port 1337", "pid 7 holds it", "end it")
    assert faults.guarded("flodl-window", lambda: raising(fault), as_json=True) == exits.NOT_DONE
    out, err = capsys.readouterr()
    assert err == "flodl-window: cannot bind port 1337: pid 7 holds it\nfix: end it\n"
    assert json.loads(out) == {"error": fault.as_dict()}


def test_guarded_keeps_stdout_clean_without_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.guarded("fdl", lambda: raising(faults.usage("cannot read --epochs"))) == exits.USAGE
    assert capsys.readouterr() == ("", "fdl: cannot read --epochs\n")


def test_guarded_says_what_the_system_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert faults.guarded("fdl", lambda: raising(PermissionError(13, "Permission denied", "/x"))) == exits.NOT_DONE
    assert capsys.readouterr().err == "fdl: cannot go on: /x: Permission denied\n"


def test_guarded_turns_ctrl_c_into_130_and_passes_the_code_through() -> None:
    assert faults.guarded("fdl", lambda: raising(KeyboardInterrupt())) == exits.INTERRUPTED
    assert faults.guarded("fdl", lambda: 7) == 7


def test_a_bug_still_shows_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        faults.guarded("fdl", lambda: 1 // 0)


def run_with(shell_words: str, body: str, as_json: bool = False) -> subprocess.CompletedProcess[str]:
    start = f"sys.exit(faults.guarded('x', main, as_json={as_json}))"
    program = f"import os, sys; from flodl_wire import faults\n{body}\n{start}"
    line = f'"$0" -c "$1" {shell_words}'
    return subprocess.run(["sh", "-c", line, sys.executable, program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&-", "<&- >&- 2>&-"])
def test_a_closed_stream_leads_nowhere_and_its_number_goes_to_nobody_else(closed: str) -> None:
    body = (
        "def main():\n"
        "    print('to stdout', flush=True); print('to stderr', file=sys.stderr); sys.stdin.read()\n"
        "    mine = os.open('/dev/null', os.O_RDONLY)\n"
        "    os.spawnvp(os.P_WAIT, 'sh', ['sh', '-c', 'read x; echo child; echo child >&2'])\n"
        "    return 9 if mine < 3 else 5"
    )
    done = run_with(closed, body)
    out = "" if ">&-" in closed.replace("2>&-", "") else "to stdout\nchild\n"
    err = "" if "2>&-" in closed else "to stderr\nchild\n"
    assert (done.returncode, done.stdout, done.stderr) == (5, out, err)


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_fault_goes_to_stderr_or_nowhere_but_never_to_stdout(closed: str) -> None:
    done = run_with(closed, "def main(): raise faults.Refused('c', 'cannot', 'why', 'fix')")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == ("" if "2" in closed else "x: cannot: why\nfix: fix\n")


def test_the_hot_path_imports_nothing_heavy() -> None:
    program = (
        "import sys; from flodl_wire import faults, environ, address, deadlines, outlets\n"
        "print(sorted({'json', 'msgspec', 'yaml', 'asyncio', 'subprocess', 'http.client'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
