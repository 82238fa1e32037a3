"""The role that an environment names, and what a process becomes."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import combinations
from pathlib import Path

import pytest

from flodl_planes.role import promotion, roles
from flodl_planes.role.roles import Role, dispatch, role_of
from flodl_wire import blob, environ
from flodl_wire.config import Cluster
from flodl_wire.faults import Refused

NAMED = {
    (): Role.ALONE,
    (environ.FULL_CLUSTER_JSON,): Role.LAUNCHER,
    (environ.AGENT_JSON,): Role.AGENT,
    (environ.RELAY_JSON,): Role.RELAY,
    (environ.CLUSTER_JSON, environ.LOCAL_RANK): Role.RANK,
}


@pytest.mark.parametrize(("names", "role"), NAMED.items())
def test_each_role_is_named_by_its_variables(names: tuple[str, ...], role: Role) -> None:
    assert role_of(dict.fromkeys(names, "x")) is role


MIXES = [
    mix
    for size in range(1, len(environ.ROLE_VARIABLES) + 1)
    for mix in combinations(environ.ROLE_VARIABLES, size)
    if mix not in NAMED
]


@pytest.mark.parametrize(
    "mix", MIXES, ids=lambda mix: "+".join(name.removeprefix(environ.INTERNAL_PREFIX) for name in mix)
)
def test_any_other_mix_is_refused_listing_each_variable_as_set_or_unset(mix: tuple[str, ...]) -> None:
    with pytest.raises(Refused) as refused:
        role_of(dict.fromkeys(mix, "x"))
    for name in environ.ROLE_VARIABLES:
        assert f"{name} {'set' if name in mix else 'unset'}" in str(refused.value)


def script(tmp_path: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "train it.py"
    path.write_text(text)
    return subprocess.run(
        [sys.executable, "-X", "utf8", str(path), "--lr", "0.1", "zwei Wörter", ""],
        env={**os.environ, **variables}, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip


@pytest.fixture
def recorders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Executables of the siblings that print their arguments, NUL-separated, found where a real one would not be."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("flodl-window", "flodl-agent", "flodl-planes"):
        (folder / name).write_text(f'#!/bin/sh\nprintf "%s\\0" {name} "$@"\nprintf "mode=%s" "${environ.MODE}"\n')
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


LINE_ONE = (
    "from flodl_planes import dispatch\nfrom flodl_wire import sibling\n"
    "sibling.find = __import__('shutil').which\nprint(dispatch().value)\n"
)


@pytest.mark.parametrize(
    ("variable", "becomes"),
    [
        (environ.FULL_CLUSTER_JSON, ["flodl-window", "launch", "--", "PYTHON"]),
        (environ.AGENT_JSON, ["flodl-agent", "run", "--", "PYTHON"]),
        (environ.RELAY_JSON, ["flodl-planes", "relay"]),
    ],
)
def test_a_script_becomes_the_tool_with_its_own_command_to_the_letter(
    tmp_path: Path, recorders: Path, variable: str, becomes: list[str]
) -> None:
    done = script(tmp_path, LINE_ONE, **{variable: "7b7d"})
    own = [sys.executable, "-X", "utf8", str(tmp_path / "train it.py"), "--lr", "0.1", "zwei Wörter", ""]
    expected = becomes[:-1] + own if becomes[-1] == "PYTHON" else becomes
    assert done.stdout.split("\0")[:-1] == expected, done.stderr


def test_the_mode_a_script_asks_for_reaches_the_launcher_unless_another_was_named(
    tmp_path: Path, recorders: Path
) -> None:
    asks = LINE_ONE.replace("dispatch()", "dispatch(mode='cpu_sync')")
    assert script(tmp_path, asks, **{environ.FULL_CLUSTER_JSON: "7b7d"}).stdout.endswith("mode=cpu_sync")
    named = {environ.FULL_CLUSTER_JSON: "7b7d", environ.MODE: "torch"}
    assert script(tmp_path, asks, **named).stdout.endswith("mode=torch")


def test_alone_a_script_goes_on_and_torch_is_not_imported(tmp_path: Path) -> None:
    text = "from flodl_planes import Trainer, local_cluster, dispatch\n" + LINE_ONE
    text += "local_cluster()\nimport sys; print('torch' in sys.modules)\n"
    assert script(tmp_path, text).stdout == "alone\nFalse\n"


def test_a_mix_of_roles_ends_a_script_with_its_words_and_no_traceback(tmp_path: Path) -> None:
    done = script(tmp_path, LINE_ONE, **{environ.AGENT_JSON: "7b7d", environ.LOCAL_RANK: "0"})
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("flodl: cannot tell this process's role") and "\nfix: unset" in done.stderr


def test_a_trainer_that_cannot_be_meant_ends_a_script_before_anything_is_started(tmp_path: Path) -> None:
    text = "from flodl_planes import Trainer\nTrainer(model=print, optimizer=print, data=[1], epochs=0)\n"
    done = script(tmp_path, text, **{environ.FULL_CLUSTER_JSON: "7b7d"})
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("flodl: cannot train with epochs=0: that trains nothing\nfix: ")


def test_a_missing_tool_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles.sibling, "find", lambda program: None)
    monkeypatch.setenv(environ.FULL_CLUSTER_JSON, "7b7d")
    with pytest.raises(Refused) as refused:
        dispatch()
    assert refused.value.fix == f"{sys.executable} -m pip install flodl-window"


@pytest.fixture
def two_gpus(recorders: Path) -> None:
    (recorders / "nvidia-smi").write_text('#!/bin/sh\necho "GPU 0: A (UUID: x)"\necho "GPU 1: B (UUID: y)"\n')
    (recorders / "nvidia-smi").chmod(0o755)


@pytest.mark.usefixtures("two_gpus")
def test_a_script_run_by_hand_on_two_gpus_becomes_a_cluster_of_this_box(tmp_path: Path) -> None:
    assert script(tmp_path, LINE_ONE).stdout.startswith("flodl-window\0launch\0--\0")


@pytest.mark.usefixtures("two_gpus")
@pytest.mark.parametrize(
    "variables", [{"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": ""}, {"WORLD_SIZE": "2"}]
)
def test_a_mask_or_another_launcher_keeps_it_alone(tmp_path: Path, variables: dict[str, str]) -> None:
    assert script(tmp_path, LINE_ONE, **variables).stdout == "alone\n"


@pytest.mark.usefixtures("two_gpus")
def test_the_cluster_of_this_box_holds_the_visible_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(promotion, "_run_by_hand", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1,0")
    monkeypatch.setenv(environ.HOST_NAME, "here")
    monkeypatch.chdir(tmp_path)
    text = promotion.cluster_of_this_box()
    assert text is not None
    worker = blob.decode(text, Cluster, "test").workers[0]
    assert (worker.host, worker.local_devices, worker.path) == ("here", [1, 0], str(tmp_path))
