"""The publish: block, the flags over it, the tail over both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flodl_publish import settings
from flodl_publish.settings import Handed
from flodl_wire import environ
from flodl_wire.faults import Refused

BLOCK: dict[str, Any] = {"source": "file:///home/op/x", "bin": "train.py", "cwd": "a", "args": ["--lr", "1"]}


def settle(block: dict[str, Any], tail: list[str] | None = None, project: Path | None = None, **flags: str) -> Any:
    return settings.settle(Handed(block, project, ""), {key: flags.get(key) for key in settings.KEYS}, tail)


def test_flags_win_field_by_field() -> None:
    got = settle(BLOCK, bin="other.py")
    assert (got.bin, got.cwd, got.args) == ("other.py", "a", ["--lr", "1"])


def test_a_tail_replaces_the_args_even_an_empty_one() -> None:
    assert settle(BLOCK, ["x"]).args == ["x"]
    assert settle(BLOCK, []).args == []


def test_paths_of_the_block_are_the_projects_and_those_of_flags_the_shells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert settle({**BLOCK, "to": "run"}, project=Path("/srv/p")).to == Path("/srv/p/run")
    assert settle(BLOCK, project=Path("/srv/p"), to="run").to == tmp_path / "run"
    assert settle(BLOCK).to == Path.home() / ".flodl" / "run"


def test_a_bin_may_lie_beside_its_project_in_the_workspace() -> None:
    assert settle(BLOCK, bin="../target/release/x").bin == "../target/release/x"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sauce": "x"}, "did you mean source"),
        ({"no_build": True}, "on purpose"),
        ({"args": "--lr 1"}, "list of texts"),
        ({"args": [1]}, "list of texts"),
        ({"cwd": 5}, "must be text"),
        ({"cwd": "../x"}, "leads out"),
        ({"cwd": "/x"}, "leads out"),
        ({"bin": "/bin/sh"}, "leads out"),
        ({"bin": "../../sh"}, "leads out"),
        ({"bin": " "}, "missing"),
        ({"source": "x"}, "no scheme"),
        ({"to": "/home/op/x/served"}, "publish itself"),
        ({"to": "/home/op"}, "overwrites"),
        ({"to": "/home/op/x"}, "publish itself"),
        ({"args": ["\udcff"]}, "UTF-8"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_its_key(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(Refused) as caught:
        settle({**BLOCK, **changes})
    assert said in caught.value.render()


def test_bin_and_source_are_asked_for() -> None:
    for key in ("bin", "source"):
        with pytest.raises(Refused, match=f"publish.{key}: it is missing"):
            settle({k: v for k, v in BLOCK.items() if k != key})


def test_fdl_hands_over_block_project_and_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"publish": BLOCK, "manifest": "/srv/p/fdl.yml", "cluster": {"controller": {"host": "desk"}}}
    monkeypatch.setenv(environ.CONFIG_JSON, json.dumps(document).encode().hex())
    assert settings.handed(None) == Handed(BLOCK, Path("/srv/p"), "desk")
    for bad in ("zz", b"[]".hex(), b'{"publish": 3}'.hex()):
        monkeypatch.setenv(environ.CONFIG_JSON, bad)
        with pytest.raises(Refused):
            settings.handed(None)
