"""Which command lines are Python running a script, and which of those import torch."""

from __future__ import annotations

import pytest

from flodl_agent.plan import Child
from flodl_agent.preload import TORCH, TRAINER, Preload, plan_preload, what_to_load
from flodl_agent.python_command import PythonCommand, read_command
from flodl_wire import environ


@pytest.mark.parametrize(
    ("argv", "command"),
    [
        ("python train.py --lr 1", PythonCommand("script", "train.py", 1, 2)),
        ("/v/bin/python3.11 -u -BO train.py", PythonCommand("script", "train.py", 3, 4)),
        ("python3 -W error -Xutf8=1 -X dev sub/train", PythonCommand("script", "sub/train", 6, 7)),
        ("python -Werror -m pkg.train -m x", PythonCommand("module", "pkg.train", 2, 4)),
        ("python -mtrain a", PythonCommand("module", "train", 1, 2)),
    ],
)
def test_a_script_and_a_module_are_recognised_with_their_options(argv: str, command: PythonCommand) -> None:
    assert read_command(argv.split()) == command


@pytest.mark.parametrize(
    "argv",
    [
        "", "python", "python -", "python -u", "python -c pass", "python -i train.py", "python -X importtime train.py",
        "python -v train.py", "python -W", "python -um train", "python --version", "pypy3 train.py", "sh train.py",
        "torchrun train.py", "pythonw train.py", "python2 train.py", "python -S train.py",
    ],
)  # fmt: skip
def test_everything_else_is_not(argv: str) -> None:
    assert read_command(argv.split()) is None


def test_an_empty_word_is_no_script() -> None:
    assert read_command(["python", ""]) is None


def load(files: dict[str, str], argv: str = "python train.py") -> tuple[str, ...]:
    command = read_command(argv.split())
    assert command
    return what_to_load(command, files.get)


def test_a_script_that_imports_torch_says_so_itself_or_by_a_module_beside_it() -> None:
    assert load({"train.py": "import os\nfrom torch import nn"}) == TORCH
    assert load({"train.py": "def f():\n    import torch.nn as nn\nimport flodl_planes"}) == TORCH + TRAINER
    assert load({"train.py": "from flodl_planes import Trainer"}) == TORCH + TRAINER
    beside = {"sub/train.py": "from parts import model", "sub/parts/model.py": "from .base import B"}
    assert load(beside | {"sub/parts/base.py": "import torch"}, "python sub/train.py") == TORCH
    assert load({"pkg/__main__.py": "from . import x", "pkg/x.py": "import torch"}, "python -m pkg") == TORCH
    assert load({"pkg/t.py": "import torch", "pkg/__init__.py": ""}, "python -m pkg.t") == TORCH


def test_a_script_that_does_not_is_left_alone() -> None:
    for text in ("import numpy", "import torchmetrics", "from . import torch", "x = = 1", "\0", "# import torch"):
        assert load({"train.py": text}) == (), text
    assert load({}) == () and load({"train.py": "import other", "torch.py": "x"}) == ()


def test_nor_is_one_that_first_sets_what_torch_would_notice() -> None:
    before = (
        "import os; os.environ['OMP_NUM_THREADS'] = '1'", "os.environ.setdefault('A', 'b')", "del os.environ['A']",
        "import sys; sys.path.insert(0, 'x')", "sys.path += ['x']", "from os import environ; environ['A'] = 'b'",
        "os.putenv('A', 'b')", "load_dotenv()", "sys.path = []", "os.environ |= {}",
    )  # fmt: skip
    for line in before:
        assert load({"train.py": f"{line}\nimport torch"}) == (), line
        assert load({"train.py": f"import torch\n{line}"}) == TORCH, line
        assert load({"train.py": "import settings, torch", "settings.py": line}) == (), line
    assert load({"train.py": "import os, sys\nprint(os.environ['A'], sys.path)\nimport torch"}) == TORCH


def children(ranks: int = 2, argv: str = "python train.py", **env: str) -> list[Child]:
    relay = Child("relay", None, ["flodl-planes", "relay"], {}, "/p")
    return [relay, *(Child(f"rank {rank}", rank, argv.split(), env, "/p") for rank in range(ranks))]


def planned(made: list[Child], mode: str = "cpu_sync", gpus: bool = False) -> Preload | None:
    return plan_preload(made, mode, gpus=gpus, read={"train.py": "import torch"}.get)


def test_ranks_are_forked_where_several_without_a_gpu_run_such_a_script() -> None:
    preload = planned(children())
    assert preload and preload.order()["modules"] == TORCH and preload.order()["head"] == 1
    assert not planned(children(1))
    assert not planned(children(), mode="torch")
    assert not planned(children(), gpus=True)
    assert not planned(children(argv="sh train.sh"))
    assert not planned(children(PYTHONPROFILEIMPORTTIME="1"))


def test_the_switch_in_the_ranks_environment_turns_it_off() -> None:
    for text in ("0", "off", "False", "no"):
        assert not planned(children(**{environ.FORKSERVER: text}))
    assert planned(children(**{environ.FORKSERVER: "1"}))
