"""Ctrl-C while an executable still imports: 130 and no word, wherever it meets the import."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from integration.project import BIN

EXECUTABLES = (
    "fdl", "flodl-agent", "flodl-ncclbuild", "flodl-planes", "flodl-probe", "flodl-publish", "flodl-window",
)  # fmt: skip
# Python reads it before the program: it presses Ctrl-C at the nth module that is looked for behind the program's own.
PRESS = """
import os, sys

class Presser:
    left = None

    def find_spec(self, name, path=None, target=None):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        elif name.startswith("flodl_") and name.endswith(".main"):
            self.left = int(os.environ["PRESS_AT"])

sys.meta_path.insert(0, Presser())
"""


@pytest.mark.parametrize("name", EXECUTABLES)
def test_ctrl_c_at_any_import_of_an_executable_ends_it_with_130_and_no_traceback(name: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(PRESS)
    pressed = 0
    for at in (1, 2, 3, 5, 8, 13):
        done = subprocess.run(
            [BIN / name, "--version"],
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PRESS_AT": str(at)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) in ((130, ""), (0, "")), (at, done)
        pressed += done.returncode == 130
    assert pressed >= 2, "nothing was imported behind main.py"
