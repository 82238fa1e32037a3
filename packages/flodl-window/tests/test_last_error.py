"""The line of a program's last ones that says what went wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from window_worlds import Driven, cluster, failed, trained

from flodl_window import events as ev
from flodl_window.last_error import MOST, last_error
from flodl_wire.join_messages import Abort, RankExited
from flodl_wire.specs import FanoutEvent

PLAIN = """\
epoch 3
Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
    ^^^^^^
ValueError: the data set is
not two lines"""
CHAINED = """\
Traceback (most recent call last):
  File "a.py", line 1, in f
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
RuntimeError: no x"""
WORKER = """\
Traceback (most recent call last):
  File "torch/_utils.py", line 722, in reraise
    raise exception
ValueError: Caught ValueError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)
ValueError: image 12 is empty"""
OF_TORCHRUN = "\n".join(f"[rank1]: {line}" for line in CHAINED.splitlines())
GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "g.py", line 1, in <module>
  |     raise ExceptionGroup("two", [ValueError("one"), TypeError("other")])
  | ExceptionGroup: two (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ValueError: one
    +---------------- 2 ----------------
    | TypeError: other
    +------------------------------------"""
STATE_DICT = """\
Traceback (most recent call last):
  File "t.py", line 2
RuntimeError: Error(s) in loading state_dict for Net:
\tMissing key(s) in state_dict: "a.weight"."""
SYNTAX = """\
  File "/p/train.py", line 3
    x = (
        ^
SyntaxError: '(' was never closed"""
LATER = PLAIN + "\n[W1130] Warning: destroy_process_group() was not called before program exit"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (PLAIN, "ValueError: the data set is"),
        (CHAINED, "RuntimeError: no x"),
        (WORKER, "ValueError: image 12 is empty"),
        (OF_TORCHRUN, "RuntimeError: no x"),
        (GROUP, "ExceptionGroup: two (2 sub-exceptions)"),
        (STATE_DICT, 'RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: "a.weight".'),
        (SYNTAX, "SyntaxError: '(' was never closed"),
        (LATER, "ValueError: the data set is"),
        ("flodl: cannot build the model: no GPU\nfix: take one", "cannot build the model: no GPU"),
        ("Traceback (most recent call last):\n  cut off", ""),
        ("epoch 3\nloss 0.1", ""),
    ],
)
def test_the_exception_that_ended_a_program_is_found_in_its_last_lines(text: str, said: str) -> None:
    assert last_error(text.splitlines(), 1) == said


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("usage: train.py [-h]\ntrain.py: error: unrecognized arguments: --foo", 2, "train.py: error: unrecognized"),
        ("python: can't open file '/p/trian.py': [Errno 2] No such file", 2, "python: can't open file '/p/trian.py'"),
        ("sh: 1: trian: not found", 127, "sh: 1: trian: not found"),
        (PLAIN + "\ncaught, tried again\ngiving up", 3, ""),
    ],
)
def test_another_code_is_explained_by_what_usually_ends_with_it_and_never_by_a_traceback_that_was_caught(
    text: str, code: int, said: str
) -> None:
    found = last_error(text.splitlines(), code)
    assert found.startswith(said) and bool(found) == bool(said)


def test_a_signal_is_explained_by_what_dying_programs_print() -> None:
    fatal = ["Fatal Python error: Segmentation fault", "", "Current thread 0x1:", '  File "x.py", line 1 in f']
    assert last_error(fatal, None, 11) == fatal[0]
    thrown = ["terminate called after throwing", "  what():  CUDA error: x"]
    assert last_error(thrown, None, 6) == "what():  CUDA error: x"
    assert last_error(PLAIN.splitlines(), None, 9) == "", "what the kernel killed said nothing of it"


def test_what_it_says_is_harmless_and_short() -> None:
    said = last_error(["Traceback (most recent call last):", "\x1b[31mRuntimeError: \x07" + "x" * 5000], 1)
    assert said.startswith("RuntimeError: ") and said.isprintable() and len(said) == MOST


@given(st.lists(st.text()), st.none() | st.integers(), st.none() | st.integers())
def test_any_lines_are_taken(lines: list[str], code: int | None, signal: int | None) -> None:
    assert len(last_error(lines, code, signal)) <= MOST


def test_an_agents_advice_is_the_fix_and_its_reason_the_line_before() -> None:
    world = Driven(cluster("cpu:1", "cpu:1"))
    text = "a banner\nflodl-agent: cannot offer 2 GPUs: this box has none\nfix: local_devices: cpu:2"
    world.do(ev.FanoutReported(FanoutEvent("exited", "node-b", 1, text)))
    assert failed(world).endswith("its agent ended (exit 1): flodl-agent: cannot offer 2 GPUs: this box has none")
    assert world.run.cause is not None and world.run.cause.fix == "local_devices: cpu:2"


def test_a_script_that_raises_everywhere_is_told_by_the_exception_of_the_first_that_spoke() -> None:
    world = trained()
    raised = ["Traceback (most recent call last):", '  File "train.py", line 1', "ValueError: no such pixel"]
    world.says("node-b", RankExited(1, 1, tail=raised))
    world.says("node-a", RankExited(0, 1, tail=[*raised[:2], "KeyError: 'later'"]))
    assert failed(world) == "rank 1 on node-b exit 1: ValueError: no such pixel"
    assert {message.reason for message in world.sent(Abort)} == {"rank 1 on node-b exit 1: ValueError: no such pixel"}
