"""Which programs of walk-ins are asked for their model."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl_agent import entry

ASKED = [
    "from flodl_planes import Trainer",
    "from flodl_planes import (\n    Trainer as T,\n)",
    "import flodl_planes\nflodl_planes.Trainer()",
    "def main():\n    from flodl_planes import *\n    Trainer()",
    "from flodl_planes import Trainer\ndef broken(:\n",  # the script itself says what is wrong with it
    "from flodl_planes import Trainer\nx = '\0'",
]
UNASKED = [
    "import torch",
    "class Trainer: pass\nTrainer()",
    "from flodl_planes import rendezvous  # no Trainer here",
    '"""Like a Trainer."""\nfrom flodl_planes.plane.layout import lay_out',
]


@pytest.mark.parametrize("text", ASKED)
def test_a_script_that_imports_a_trainer_is_asked(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    assert entry.unasked("train.py", str(tmp_path)) == ""


@pytest.mark.parametrize("text", UNASKED)
def test_one_that_only_tells_of_it_would_begin_to_train_and_is_not(tmp_path: Path, text: str) -> None:
    (tmp_path / "train.py").write_text(text)
    assert entry.unasked("train.py", str(tmp_path)) == "train.py itself imports no Trainer from flodl_planes"
