"""`fdl init [DIR]`: writes a project that trains at once with `fdl train`, with comments that teach."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys

from flodl_cli.command_line import CommandLine
from flodl_wire import exits, outlets
from flodl_wire.faults import Refused, usage

TEMPLATE = os.path.join(os.path.dirname(__file__), "template")

# file of the template → file of the project; the names differ where a tool would take the template itself for code
FILES = {
    "train.py.txt": "train.py",
    "fdl.yml.txt": "fdl.yml",
    "fdl.cluster.yml.txt": "fdl.cluster.yml.example",
    "PROJECT.md": "README.md",
    "gitignore.txt": ".gitignore",
}

HELP = """\
usage: fdl init [DIR]

Writes a project into DIR (default: here) that trains at once with `fdl train`:
train.py, fdl.yml, fdl.cluster.yml.example, README.md, .gitignore. Nothing that exists is overwritten.
"""


def main(line: CommandLine) -> int:
    if any(word in ("-h", "--help") for word in line.rest):
        print(HELP, end="")
        return exits.DONE
    if len(line.rest) > 1 or (line.rest and line.rest[0].startswith("-")):
        raise usage("cannot do `fdl init " + " ".join(line.rest) + "`", "it takes one folder at most", "fdl init [DIR]")
    folder = line.rest[0] if line.rest else os.curdir
    write(folder)
    outlets.work_is_done()
    for name in FILES.values():
        print(os.path.normpath(os.path.join(folder, name)))
    if line.verbosity != "quiet":
        print(_next_steps(folder), file=sys.stderr)
    return exits.DONE


def write(folder: str) -> None:
    """Write the project into `folder`. Raises Refused before anything is touched when a file of it is there already;
    one that fails half-way (a full disk) leaves nothing behind.
    """
    what = f"cannot write a project into {os.path.abspath(folder)}"
    there = [name for name in FILES.values() if os.path.lexists(os.path.join(folder, name))]
    if there:
        raise Refused("exists", what, f"there is already {', '.join(there)}", "choose another folder: fdl init DIR")
    written: list[str] = []
    made = missing_folders(folder)
    try:
        os.makedirs(folder, exist_ok=True)
        for source, target in FILES.items():
            with open(os.path.join(TEMPLATE, source), "rb") as file:
                data = file.read()
            path = os.path.join(folder, target)
            with open(path, "xb") as file:
                written.append(path)
                file.write(data)
    except OSError as err:
        for path in written:
            os.unlink(path)
        for path in made:
            if os.path.isdir(path):
                os.rmdir(path)
        where = err.filename or (written[-1] if written else folder)
        fix = "make room, or choose a folder that you may write: fdl init DIR"
        raise Refused("unwritable", what, f"{where}: {err.strerror or err}; nothing is left of it", fix) from None


def missing_folders(folder: str) -> list[str]:
    """`folder` and those above it that are not there, the deepest first."""
    found = []
    path = os.path.abspath(folder)
    while not os.path.isdir(path):
        found.append(path)
        path = os.path.dirname(path)
    return found


def _next_steps(folder: str) -> str:
    steps = [] if os.path.realpath(folder) == os.path.realpath(os.curdir) else [f"  cd {shlex.quote(folder)}"]
    missing = [
        name for name, package in (("torch", "torch"), ("flodl_planes", "planes")) if not importlib.util.find_spec(name)
    ]
    if missing:
        steps.append('  pip install "flodl-planes[torch]" flodl-window flodl-agent')
    steps += [
        "  fdl train                  # one process; a rank on each GPU where there are several",
        "  fdl --gpus cpu:2 train     # two ranks on this box's processor",
    ]
    return "\nnext:\n" + "\n".join(steps)
