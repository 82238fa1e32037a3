"""Whatever a manifest holds, the answer is a plan or a sentence, never a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flodl_cli import cli_config, cli_help, command_line, gpus, manifest, project_files, sibling
from flodl_cli.completion import candidates
from flodl_cli.run_plan import plan_run
from flodl_wire.config import Cluster, Controller, JoinWindow, Ssh, Worker
from flodl_wire.faults import Fault

KEYS = sorted({
    *manifest.MANIFEST_KEYS, *manifest.COMMAND_KEYS, "train", "a b", "é", "-x", "@y", "on", "",
    *(name for struct in (Cluster, Controller, JoinWindow, Worker, Ssh) for name in struct.__struct_fields__),
})  # fmt: skip
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 2000), st.sampled_from([0.5, 1e9]),
    st.sampled_from(["", " ", "python train.py", "x | y", "cpu:2", "all", "0,1", "cpu_sync", "10.0.0.1", ".", "sub",
                     "dev", "$X 'y", "a -- b", "é🙂\n", "@x", "manual", "~/x", "../.."]),
)  # fmt: skip
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner))
COMMANDS = st.dictionaries(
    st.sampled_from(["train", "sub", "quick"]),
    st.fixed_dictionaries({}, optional={
        "run": SCALARS, "entry": SCALARS, "path": SCALARS, "options": TREES, "append": TREES, "docker": SCALARS,
        "build": SCALARS, "cluster": st.booleans(), "mode": SCALARS, "env": TREES, "commands": TREES,
    }),
    max_size=3,
)  # fmt: skip
MANIFESTS = st.fixed_dictionaries(
    {}, optional={"commands": COMMANDS | TREES, "cluster": TREES, "env": TREES, "run": SCALARS}
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("any")
    (made / "sub").mkdir()
    return made


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    root=MANIFESTS | TREES,
    child=MANIFESTS,
    overlay=MANIFESTS | TREES,
    words=st.lists(st.sampled_from(["x", "--", "quick", "@lab", ""])),
)
def test_every_manifest_is_planned_or_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, root: Any, child: Any, overlay: Any, words: list[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sibling, "find", lambda name: f"/tools/{name}")
    monkeypatch.setattr(gpus, "visible", lambda: [0, 1])
    monkeypatch.setattr("flodl_cli.cluster.resolve_hosts", lambda names: [])
    monkeypatch.setattr("flodl_cli.container._knows_add_host", lambda docker: False)
    for name, document in (("fdl.json", root), ("sub/fdl.json", child), ("fdl.lab.json", overlay)):
        (folder / name).write_text(json.dumps(document))
    for env in (None, "lab"):
        line = command_line.parse([*(["@lab"] if env else []), "train", *words])
        try:
            project = project_files.load(os.getcwd(), env)
            assert project is not None
            cli_config.as_text(project)
            cli_config.as_json(project)
            commands = manifest.commands_of(project)
        except Fault as fault:
            assert fault.what and fault.why
            continue
        cli_help.overview(env)
        candidates(["@lab"] if env else [], "")
        for command in [*commands.values()]:
            cli_help.command_help(command)
            try:
                command.open()
                if command.run is not None:
                    run = plan_run(project, command, words, line)
                    assert all(isinstance(word, str) and "\0" not in word for word in run.argv)
                    assert (
                        [word for word in run.argv if word in words][-len(words) :] == words
                        or not words
                        or "--" in words
                    )
            except Fault as fault:
                assert fault.what and fault.why
