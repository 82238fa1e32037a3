"""The program a walk-in runs: whether it is there, and, when it trains with flodl, what its model and data are.

Asked with an environment variable set, a script's `Trainer` builds its model, says what it is made of and exits before
training. A script that has none would start to train instead, so only files that import it from flodl are asked.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import msgspec

from flodl_wire import environ
from flodl_wire.deadlines import deadline
from flodl_wire.entry_words import Words
from flodl_wire.faults import Refused, Transient
from flodl_wire.plane_messages import TensorSpec

_SECONDS = 300.0  # torch from a cold disk, then a large model
_KNOWS_US = re.compile(r"^\s*(import|from)\s+flodl_planes\b", re.MULTILINE)
SIGNATURE = "flodl-model-sig: "  # the line that says it


class Signatures(msgspec.Struct, omit_defaults=True):
    """What the line holds as JSON. Signatures are 64 hex digits, "" when there is none to compare."""

    model_sig: str = ""
    dataset_sig: str = ""
    tensors: list[TensorSpec] = []


def resolve(words: Words, folder: str) -> list[str]:
    """The program as it can be started from `folder`. Raises Refused when it is not there."""
    program, script = list(words.program), words.script
    if script and not (Path(folder) / Path(script).expanduser()).is_file():
        raise Refused("no-bin", f"cannot run {script}", f"there is no such file in {folder}", "check --bin or join.bin")
    if script and program == [script]:  # bin: train.py
        if os.access(Path(folder) / script, os.X_OK):
            return [str(Path(folder) / Path(script).expanduser())]
        return ["python", script]
    name = program[0]
    if "/" in name:
        path = Path(folder) / Path(name).expanduser()
        if not path.is_file():
            raise Refused("no-bin", f"cannot run {name}", f"there is no such file in {folder}", "check --bin")
        if not os.access(path, os.X_OK):
            raise Refused("no-bin", f"cannot run {name}", "it is not executable", f"chmod +x {path}")
        return [str(path), *program[1:]]
    if shutil.which(name, path=search_path()) is None:
        local = Path(folder) / name
        if local.is_file() and os.access(local, os.X_OK):
            return [str(local), *program[1:]]
        raise Refused("no-bin", f"cannot run {name}", "it is neither on PATH nor in the project", "check --bin")
    return program


def search_path() -> str:
    """PATH as the ranks will have it: the folder of our own executables first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def source(program: list[str], script: str, folder: str) -> str:
    """The Python file that `program` runs, from `folder`: its script, or that of ``-m module`` where it lies in the
    project; "" when there is none to look into.
    """
    if script:
        return script
    for at, word in enumerate(program[1:], 1):
        if word.startswith("-m"):
            path = (word[2:] or "".join(program[at + 1 : at + 2])).replace(".", "/")
            found = (f"{path}.py", f"{path}/__main__.py", f"src/{path}.py", f"src/{path}/__main__.py")
            return next((name for name in found if (Path(folder) / name).is_file()), "")
    return ""


def unasked(file: str, folder: str) -> str:
    """Why the program whose source is `file` is not asked for its model; "" when it is: it imports flodl_planes and
    names a Trainer.
    """
    if not file:
        return "no Python file of this project is seen in its command"
    try:
        text = (Path(folder) / Path(file).expanduser()).read_text(errors="replace")
    except OSError as err:
        return f"{file} cannot be read ({err.strerror or err})"
    if _KNOWS_US.search(text) and names_a_trainer(text):
        return ""
    return f"{file} itself imports no Trainer from flodl_planes"


def names_a_trainer(text: str) -> bool:
    """Whether this Python means one by that name, rather than tells of it in a comment. Of what cannot be read as
    Python the script itself says what is wrong, when it is asked.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of strings that the script's own run complains about
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "Trainer" in text
    return any(
        (isinstance(node, ast.alias) and node.name == "Trainer")
        or (isinstance(node, ast.Name) and node.id == "Trainer")
        or (isinstance(node, ast.Attribute) and node.attr == "Trainer")
        for node in ast.walk(tree)
    )


def probe(program: list[str], args: list[str], folder: str, environment: dict[str, str]) -> Signatures:
    """Ask the program for its signatures. `environment`: laid over ours. Raises Transient: what it cannot say today it
    may say after the next edit.
    """
    env = {name: value for name, value in os.environ.items() if name not in environ.ROLE_VARIABLES}
    env |= environment | {environ.MODEL_SIG_PROBE: "1", "PATH": search_path(), "CUDA_VISIBLE_DEVICES": ""}
    what = f"cannot learn the model of {' '.join(program)}"
    fix = "mend the script; --no-sig-probe joins without comparing models"
    try:
        done = subprocess.run(
            [*program, *args],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=max(deadline(_SECONDS), 60.0),  # most of it is processor time, which no scale makes shorter
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Transient("sig-probe", what, "asked only for that, it went on for minutes", fix) from None
    except OSError as err:
        raise Transient("sig-probe", what, err.strerror or str(err), fix) from None
    for line in done.stdout.splitlines():
        if line.startswith(SIGNATURE):
            try:
                return msgspec.json.decode(line.removeprefix(SIGNATURE), type=Signatures)
            except msgspec.MsgspecError as err:
                raise Transient("sig-probe", what, f"it answered in other words: {err}", fix) from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise Transient("sig-probe", what, said[-1].strip() if said else f"it ended with {done.returncode}", fix)
    return Signatures()  # it imports flodl_planes and came to no Trainer
