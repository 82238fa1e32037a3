"""`docker:` of a command, against a recording stand-in for docker (no engine is asked)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_box import Box

from flodl_cli import cluster
from flodl_wire.config import Cluster, parse_cluster

ODD = ["", "a b", "it's", '"', "$HOME", "`id`", "*", "é🙂", "a\nb\n", "--", "@x", "-e"]
SAY = "python3 -c 'import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get(\"ODD\"), os.getcwd()]))'"


@pytest.fixture
def box(tmp_path: Path, docker: Any) -> Box:
    made = Box(tmp_path / "box")
    (made.folder / "path").symlink_to(docker.folder)
    (made.project / "compose.yaml").write_text("services: {dev: {image: x}}\n")
    return made


def test_words_and_variables_arrive_inside_byte_for_byte_and_no_value_stands_on_the_line(box: Box, docker: Any) -> None:
    value = "".join(ODD)
    say = {"run": SAY, "docker": "dev", "env": {"ODD": value}}
    (box.project / "sub").mkdir()
    (box.project / "sub" / "fdl.yml").write_text(json.dumps(say, ensure_ascii=False))
    (box.project / "fdl.yml").write_text(json.dumps({"commands": {"say": say, "sub": None}}, ensure_ascii=False))
    for name, folder in (("say", box.project), ("sub", box.project / "sub")):
        done = box.fdl(name, *ODD)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == [ODD, value, str(folder)]
    for run in docker.runs:
        assert run["words"][:4] == ["compose", "run", "--rm", "-T"]
        assert (run["service"], run["env"], run["cwd"]) == ("dev", ["ODD"], str(box.project))
        assert value not in run["words"]


@pytest.mark.parametrize("known", [False, True])
def test_under_a_cluster_overlay_the_container_learns_its_hosts(box: Box, docker: Any, known: bool) -> None:
    docker.with_add_host(known=known)
    block = {"controller": {"host": "10.0.0.1", "path": "/p"}, "workers": []}
    block["controller"]["join"] = {"discovery": True, "min_rank_start": 2}  # type: ignore[index]
    (box.project / "fdl.lab.yml").write_text(json.dumps({"cluster": block}))
    (box.project / "fdl.yml").write_text(json.dumps({"commands": {"test": {"run": "true", "docker": "dev"}}}))
    patch = (
        "import flodl_cli.cluster as c; c._address_of = lambda name: '10.9.9.9'; c._is_address = lambda name: False\n"
    )
    assert box.fdl("@lab", "test", before=patch).returncode == 0
    (run,) = docker.runs
    assert run["files"] == ["compose.yaml", ".fdl/compose-hosts.dev.yml"]
    assert run["overlay"] == [{"services": {"dev": {"extra_hosts": ["10.0.0.1:10.9.9.9"]}}}]
    assert run["hosts"] == (["10.0.0.1:10.9.9.9"] if known else [])
    assert (box.project / ".fdl" / ".gitignore").read_text() == "*\n"
    assert box.fdl("@lab", "test", before=patch, COMPOSE_FILE="mine.yml").returncode == 0
    assert docker.runs[1]["files"] == []
    assert docker.runs[1]["overlay"] == run["overlay"]


def test_a_box_without_docker_is_told_so(box: Box) -> None:
    (box.folder / "path").unlink()
    (box.project / "fdl.yml").write_text("commands: {test: {run: 'true', docker: dev}}")
    done = box.fdl("test", PATH="/nowhere")
    assert done.returncode == 127
    assert "cannot run 'test' in the service 'dev': there is no `docker` on PATH" in done.stderr


def block(**worker: Any) -> Cluster:
    workers = [{"host": "tower", "local_devices": 0, "path": "/p", **worker}]
    return parse_cluster({"controller": {"host": "desk", "path": "/p"}, "workers": workers})


def test_the_hosts_are_resolved_here_and_only_when_somebody_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def getaddrinfo(name: str, port: object, **more: object) -> list[Any]:
        asked.append(name)
        if name == "desk":
            raise OSError("unknown")
        address = {"tower": "10.0.0.2", "self": "127.0.1.1", "six": "fd00::2"}[name]
        return [(2, 1, 6, "", (address, 0))]

    monkeypatch.setattr("socket.getaddrinfo", getaddrinfo)
    assert cluster.extra_hosts(block()) is None
    assert asked == []
    assert cluster.extra_hosts(block(docker="cuda")) == "tower:10.0.0.2"
    assert sorted(asked) == ["desk", "tower"]
    assert cluster.resolve_hosts(["six", "10.0.0.9", "self", "six"]) == ["six:fd00::2"]
