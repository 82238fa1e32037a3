"""What is meant by the words for a checkpoint, and what its file alone tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flodl_wire import checkpoints
from flodl_wire.faults import Broken, Fault, Refused

OLD, NEW, NONE = "20260101-000001-aaaa", "20260101-000002-bbbb", "20260101-000003-cccc"


def file_of(*, tensors: object = None, metadata: object = None) -> bytes:
    """A safetensors file of 4 bytes, unless it is told otherwise."""
    header = {
        "__metadata__": {"flodl": "{}"} if metadata is None else metadata,
        **({"w": {"data_offsets": [0, 4]}} if tensors is None else tensors),  # type: ignore[dict-item]
    }
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"data"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs that left a checkpoint, and a newer one that left none."""
    for name in (OLD, NEW, NONE):
        (tmp_path / name).mkdir()
    for name in (OLD, NEW):
        (tmp_path / name / checkpoints.NAME).write_bytes(file_of())
    return tmp_path


def fault(said: str, runs: Path) -> Fault:
    with pytest.raises(Fault) as caught:
        checkpoints.check(said, runs)
    return caught.value


def test_what_is_there_is_no_reason_to_refuse(runs: Path) -> None:
    for said in ("latest", OLD, str(runs / OLD), str(runs / OLD / checkpoints.NAME), "auto", "never", ""):
        checkpoints.check(said, runs)
    for said in ("auto", "never", ""):
        checkpoints.check(said, runs / "nowhere")


def test_a_word_that_names_nothing_is_told_the_nearest(runs: Path) -> None:
    for said, fix in (
        (OLD[:-1] + "x", f"did you mean {OLD}?"),
        ("lastest", "did you mean latest?"),
        ("digits", f"the last runs that left a checkpoint are {NEW}, {OLD}"),
        (NONE, f"the last runs that left a checkpoint are {NEW}, {OLD}"),
        ("x" * 5000, f"the last runs that left a checkpoint are {NEW}, {OLD}"),
        ("a\0b", f"the last runs that left a checkpoint are {NEW}, {OLD}"),
        ("~nobody-of-that-name/x", f"the last runs that left a checkpoint are {NEW}, {OLD}"),
    ):
        told = fault(said, runs)
        assert isinstance(told, Refused) and (told.code, told.fix) == ("no-checkpoint", fix), said
    assert fault("digits", runs / "nowhere").fix.startswith("name a checkpoint by its path")


def test_where_no_run_left_one_the_last_cannot_be_gone_on_from(runs: Path) -> None:
    for name in (OLD, NEW):
        (runs / name / checkpoints.NAME).unlink()
    told = fault("latest", runs)
    assert told.why == f"no run below {runs} left a checkpoint" and told.fix


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "cut short, or no safetensors"),
        (b"\xff" * 100, "cut short, or no safetensors"),
        (file_of()[:-1], "it is cut short: "),
        (file_of()[:30], "cut short, or no safetensors"),
        (b"\x02" + b"\0" * 7 + b"[]", "its header cannot be read"),
        (file_of(tensors={"w": {"data_offsets": [0]}}), "its header cannot be read"),
        (file_of(tensors={"w": {"data_offsets": [0, float("inf")]}}), "its header cannot be read"),
        (file_of(tensors={"w": 7}), "its header cannot be read"),
        (file_of(metadata={}), "it holds a model, but not where training stood"),
        (file_of(metadata=[]), "it holds a model, but not where training stood"),
    ],
)
def test_a_file_of_no_use_is_told_by_its_name_unless_the_one_before_it_is_there(
    runs: Path, data: bytes, why: str
) -> None:
    file = runs / NEW / checkpoints.NAME
    file.write_bytes(data)
    for said in ("latest", NEW, str(file)):
        told = fault(said, runs)
        assert isinstance(told, Broken) and str(file) in told.what and why in told.why
        assert said == "latest" or OLD in told.fix
    (runs / NEW / checkpoints.PREVIOUS).write_bytes(file_of())
    checkpoints.check("latest", runs)
    checkpoints.check(NEW, runs)
    assert fault(str(file), runs).code == "bad-file", "a file that is named is that file"


@pytest.mark.parametrize("version", [checkpoints.VERSION + 1, 99])
def test_a_file_of_a_newer_flodl_is_not_guessed_at_and_the_one_before_it_neither(runs: Path, version: int) -> None:
    newer = file_of(metadata={"flodl": json.dumps({"v": version, "epoch": 1})})
    (runs / NEW / checkpoints.NAME).write_bytes(newer)
    (runs / NEW / checkpoints.PREVIOUS).write_bytes(file_of())
    for said in ("latest", NEW, str(runs / NEW / checkpoints.NAME)):
        told = fault(said, runs)
        assert (told.code, told.fix) == ("newer-file", "install the flodl that wrote it, or a later one"), said
        assert f"format {version}, and this one reads up to {checkpoints.VERSION}" in told.why
    checkpoints.check("auto", runs)


def test_a_file_of_this_flodl_says_its_version(runs: Path) -> None:
    (runs / NEW / checkpoints.NAME).write_bytes(file_of(metadata={"flodl": json.dumps({"v": checkpoints.VERSION})}))
    checkpoints.check("latest", runs)


@pytest.mark.parametrize(
    ("said", "goes_on"),
    [
        ('{"epoch": 1, "epochs": 3}', True), ('{"epoch": 3, "epochs": 3}', False), ("{}", False), ("[]", False),
        ('{"epoch": "1", "epochs": 3}', False), ("half", False), ('{"v": 99, "epoch": 1, "epochs": 3}', False),
    ],
)  # fmt: skip
def test_whether_a_run_can_go_on_from_a_folder_is_told_by_the_first_file_of_use(
    runs: Path, said: str, goes_on: bool
) -> None:
    assert not checkpoints.goes_on(runs / NONE)
    (runs / NONE / checkpoints.PREVIOUS).write_bytes(file_of(metadata={"flodl": said}))
    assert checkpoints.goes_on(runs / NONE) == goes_on
    (runs / NONE / checkpoints.NAME).write_bytes(b"half")
    assert checkpoints.goes_on(runs / NONE) == goes_on


def test_a_file_that_may_not_be_read_says_why(runs: Path) -> None:
    (runs / NEW / checkpoints.NAME).unlink()
    (runs / NEW / checkpoints.NAME).mkdir()
    assert fault("latest", runs).why == "Is a directory"
