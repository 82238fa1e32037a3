"""Every key of a manifest with a value that it cannot have, and a stranger beside every key: the exact words.

`refused_values.txt` holds them, a line of YAML and the answer. REWRITE_TRANSCRIPTS=1 writes what happened.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from flodl_cli import cluster_block, join_block, manifest, project_files
from flodl_wire import environ
from flodl_wire.faults import Fault

GOLDEN = Path(__file__).parent / "refused_values.txt"
WRONG: list[Any] = ["text", "", 5, True, None, [1], {"a": 1}]

ROOT = {"description": "d", "commands": {"c": {"run": "x"}}, "mode": "cpu_sync", "env": {"A": "1"}, "entry": "x"}
COMMAND = {
    "description": "d",
    "entry": "x",
    "options": {"a": 1},
    "append": "x",
    "docker": "dev",
    "build": "x",
    "cluster": True,
    "mode": "cpu_sync",
    "env": {"A": "1"},
    "commands": {"c": {"run": "x"}},
}
JOIN = {"start": "manual", "min_rank_start": 2, "target_ranks": 3, "join_timeout": 5, "max_join_timeout": 9.5,
        "discovery": True, "token": "ab" * 16, "open_admission": False, "tunnel_only": False}  # fmt: skip
CONTROLLER = {"host": "c", "path": "/p", "port": 1337, "docker": "dev", "arch": "x", "data_path": "/d", "join": JOIN}
SSH = {"target": "t", "port": 22, "user": "u", "identity_file": "/k", "options": ["A=b"]}
WORKER = {"host": "w", "local_devices": "all", "path": "/p", "nccl_socket_ifname": "e", "arch": "x", "docker": "dev",
          "data_path": "/d", "gpu_ram_share": 0.5, "env": {"A": "1"}, "ssh": SSH, "tunnel": False}  # fmt: skip
CLUSTER = {"controller": CONTROLLER, "workers": [WORKER], "env": {"A": "1"}, "gpu_ram_share": 0.5}
WALK_IN = {"controller": "h:1", "bin": "x", "args": ["a"], "host": "w", "devices": "all", "persist": True, "ssh": SSH,
           "data_path": "/d", "gpu_ram_share": 0.5, "sig_probe": True, "token": "ab" * 16}  # fmt: skip

LEVELS: list[tuple[str, dict[str, Any], list[str | int]]] = [
    ("the manifest", ROOT, []),
    ("a command", COMMAND, ["commands", "c"]),
    ("cluster", CLUSTER, ["cluster"]),
    ("cluster.controller", CONTROLLER, ["cluster", "controller"]),
    ("cluster.controller.join", JOIN, ["cluster", "controller", "join"]),
    ("cluster.workers[0]", WORKER, ["cluster", "workers", 0]),
    ("cluster.workers[0].ssh", SSH, ["cluster", "workers", 0, "ssh"]),
    ("join", WALK_IN, ["join"]),
    ("join.ssh", SSH, ["join", "ssh"]),
]


def answer(document: Any, folder: Path) -> str:
    """What is said of the manifest that holds `document`; "" when it is taken."""
    path = folder / "fdl.yml"
    path.write_text(json.dumps(document))
    try:
        project = project_files.load(str(folder), None)
        assert project is not None
        for command in manifest.commands_of(project).values():
            command.open()
        if (block := project.cluster()) is not None:
            cluster_block.parse(block)
        if (node := project.config.get("join")) is not None:
            join_block.parse(node)
    except Fault as fault:
        return f"{fault.what}: {fault.why}" + (f" | {fault.fix}" if fault.fix else "")
    return ""


def placed(value: Any, steps: list[str | int]) -> Any:
    """A whole document in which `value` stands at `steps`, and around it what is needed."""
    if not steps:
        return value
    blocks: dict[str | int, Any] = {"commands": {"c": COMMAND}, "cluster": CLUSTER, "join": WALK_IN}
    document = json.loads(json.dumps({steps[0]: blocks[steps[0]]}))
    inner = document
    for step in steps[:-1]:
        inner = inner[step]
    inner[steps[-1]] = value
    return document


def test_every_key_says_what_it_takes_and_every_stranger_is_named(tmp_path: Path) -> None:
    lines = []
    for name, block, steps in LEVELS:
        assert answer(placed(block, steps), tmp_path) == "", f"{name} as it should be"
        lines.append(f"\n# {name}")
        stranger = {**block, "strnger": 1}
        lines.append(f"strnger: 1 -> {answer(placed(stranger, steps), tmp_path)}")
        for key in block:
            for wrong in WRONG:
                said = answer(placed({**block, key: wrong}, steps), tmp_path)
                if said:
                    lines.append(f"{key}: {json.dumps(wrong)} -> {said}")
        lines += [
            f"no {key} -> {said}" for key in block if (said := answer(placed(without(block, key), steps), tmp_path))
        ]
    happened = "\n".join(lines).replace(str(tmp_path), "<project>").replace(environ.INTERNAL_PREFIX, "<INTERNAL>_")
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        GOLDEN.write_text(happened.lstrip() + "\n")
    assert happened.lstrip() + "\n" == GOLDEN.read_text()


def without(block: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != key}


def test_no_answer_speaks_python_and_each_has_a_way_on() -> None:
    for line in GOLDEN.read_text().splitlines():
        said = line.partition("-> ")[2]
        for word in ("None", "True", "False", "NoneType", "object at", "dict", "`str`", "msgspec", "Traceback"):
            assert word not in said
        assert not said or " | " in said, line
