"""A rehearsal: every check, the road measured, and nobody counted."""

from __future__ import annotations

import json
import threading
from functools import partial
from pathlib import Path

import pytest
from agent_fakes import SALT, Box, FakeLink, FakeWindow, formed
from agent_walk_ins import join, there

from flodl_wire.join_messages import Accept, AskSchema, Beat, Bye, Echo, Echoed, Hello, Reject, Schema

WORDS = ("--token", SALT.hex(), "--devices", "cpu:2", "--host", "box-7")

KNOWS_US = """
import json, os, sys
try:
    from flodl_planes import Trainer
except ImportError:
    pass
if os.environ.get({variable!r}):
    signature = "%064x" % (len(sys.argv) + 170)
    print("training on nothing")
    tensors = [["w", [2, 3], "F32", "param"]]
    print("flodl-model-sig: " + json.dumps({{"model_sig": signature, "dataset_sig": "d" * 64, "tensors": tensors}}))
    sys.exit()
print("trained with", sys.argv[1:])
"""


@pytest.fixture
def train(box: Box) -> str:
    from flodl_wire.environ import MODEL_SIG_PROBE

    (box.project / "train.py").write_text(KNOWS_US.format(variable=MODEL_SIG_PROBE))
    (box.project / "plain.py").write_text("open('began', 'w'); print('trained')")
    return "train.py"


def host_rehearsal(link: FakeLink, answer: Accept | Reject) -> None:
    """What the window does with one; until its goodbye, in a thread of its own."""

    def serve() -> None:
        assert link.wait_for(Hello).rehearsal
        link.send(answer)
        answered = 0
        while isinstance(answer, Accept) and not link.all(Bye):
            link.wait(partial(_more, link, answered), "echo or goodbye")
            for echo in link.all(Echo)[answered:]:
                answered += 1
                link.send(Echoed(echo.number, "x" * echo.want))
        link.close()

    threading.Thread(target=serve, daemon=True).start()


def _more(link: FakeLink, answered: int) -> bool | None:
    return sum(isinstance(word, (Echo, Bye)) for word in link.heard) > answered or None


def test_it_reports_what_would_happen_and_how_good_the_road_is(window: FakeWindow, box: Box, train: str) -> None:
    running = join(box, there(window), *WORDS, "--bin", "plain.py", "--try", "--json")
    link = window.link()
    host_rehearsal(link, Accept([2, 3], 30.0, "i", args=["--lr", "1"]))
    assert running.wait() == 0, running.said()
    report = json.loads(running.printed())
    assert (report["admitted"], report["ranks"], report["args"]) == (True, [2, 3], ["--lr", "1"])
    assert report["devices"] == ["cpu", "cpu"] and report["program"] == ["python", "plain.py"]
    assert 0 < report["round_trip_s"] < 5 and report["up_bytes_per_s"] > 1e5 and report["down_bytes_per_s"] > 1e5
    assert isinstance(link.heard[-1], Bye) and not [word for word in link.heard if not _of_a_rehearsal(word)]
    assert not (box.project / "began").exists()


def _of_a_rehearsal(message: object) -> bool:
    return isinstance(message, (Hello, Echo, Bye, Beat, Schema))


def test_a_refusal_is_reported_with_its_fix_and_exit_1(window: FakeWindow, box: Box, train: str) -> None:
    running = join(box, there(window), *WORDS, "--bin", "plain.py", "--try")
    host_rehearsal(window.link(), Reject("host-already-in", "cannot admit box-7", "it is in", "rename"))
    assert running.wait() == 1
    lines = [line.split(maxsplit=1) for line in running.printed().splitlines()]
    assert ["verdict", "no: cannot admit box-7: it is in"] in lines and ["fix", "rename"] in lines


def test_a_flaw_of_this_box_is_reported_and_2(box: Box, train: str) -> None:
    running = join(box, "127.0.0.1:9", *WORDS, "--bin", "not-there.py", "--try", "--json")
    assert running.wait() == 2 and json.loads(running.printed())["code"] == "no-bin"


def test_nobody_there_is_1(box: Box, train: str, free_port: int) -> None:
    running = join(box, f"127.0.0.1:{free_port}", *WORDS, "--bin", "plain.py", "--try", "--json")
    assert running.wait() == 1 and json.loads(running.printed())["code"] == "refused"


def test_the_model_is_signed_with_the_arguments_that_the_run_states(window: FakeWindow, box: Box, train: str) -> None:
    """A short visit asks for them first, when the walk-in has none of its own."""
    running = join(box, there(window), *WORDS, "--bin", train)
    visit = window.link()
    host_rehearsal(visit, Accept([0, 1], 30.0, "i", args=["--layers", "3"]))
    link = window.link()
    assert visit.wait_for(Hello).quiet and not link.wait_for(Hello).quiet
    hello = link.wait_for(Hello)
    assert not hello.rehearsal and hello.argv is None
    assert (hello.model_sig, hello.dataset_sig) == (f"{173:064x}", "d" * 64)
    link.send(AskSchema())
    assert [tensor.name for tensor in link.wait_for(Schema).tensors] == ["w"]
    link.accept([0, 1])
    both = formed([], box.project, [0, 1], relay=False)
    both.command, both.args = None, ["--layers", "3"]
    link.send(both)
    link.answer_bye()
    assert running.wait() == 0, running.said()
    assert link.lines(0) == ["trained with ['--layers', '3']"]


@pytest.mark.parametrize("words", [("--bin", "train.py", "--"), ("--bin", "train.py", "--", "-a")])
def test_arguments_of_its_own_need_no_visit(window: FakeWindow, box: Box, train: str, words: tuple[str, ...]) -> None:
    join(box, there(window), *WORDS, *words)
    hello = window.link().wait_for(Hello)
    assert not hello.rehearsal and hello.model_sig == f"{len(words) - 2 + 170:064x}"


@pytest.mark.parametrize("line", ["python -m package.train", "python -u -mpackage.train", "python -m package"])
def test_a_module_of_the_project_is_asked_like_a_script(window: FakeWindow, box: Box, train: str, line: str) -> None:
    package = box.project / "package"
    package.mkdir()
    for name in ("train.py", "__main__.py"):
        (package / name).write_text((box.project / train).read_text())
    join(box, there(window), *WORDS, "--bin", line, "--")
    assert window.link().wait_for(Hello).model_sig == f"{171:064x}"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--bin", "plain.py"), "plain.py itself imports no Trainer"),
        (("--bin", "python -m json.tool"), "no Python file of this project is seen"),
        (("--bin", "sh -c 'python train.py'"), "no Python file of this project is seen"),
        (("--bin", "train.py", "--no-sig-probe"), "the probe is switched off"),
    ],
)
def test_a_rehearsal_says_why_a_program_is_not_asked(
    window: FakeWindow, box: Box, train: str, words: tuple[str, ...], why: str
) -> None:
    running = join(box, there(window), *WORDS, *words, "--try")
    host_rehearsal(window.link(), Accept([0, 1], 30.0, "i", args=[]))
    assert running.wait() == 0, running.said()
    assert f"not compared at the door: {why}" in running.printed()


@pytest.mark.parametrize("words", [("--bin", "plain.py"), ("--bin", "train.py", "--no-sig-probe")])
def test_a_script_that_does_not_know_flodl_is_not_asked(
    window: FakeWindow, box: Box, train: str, words: tuple[str, ...]
) -> None:
    join(box, there(window), *WORDS, *words, "--", "-a")
    link = window.link()
    assert link.wait_for(Hello).model_sig == "" and not (box.project / "began").exists()
    link.send(AskSchema())
    assert link.wait_for(Schema).tensors == []


def test_a_script_that_breaks_when_asked_is_worth_another_try(box: Box, train: str, window: FakeWindow) -> None:
    path: Path = box.project / "train.py"
    path.write_text("from flodl_planes import Trainer\nraise RuntimeError('half an edit')")
    running = join(box, there(window), *WORDS, "--bin", train, "--", "-a")
    assert running.wait() == 1
    assert "cannot learn the model of python train.py" in running.said() and "Traceback" not in running.said()
