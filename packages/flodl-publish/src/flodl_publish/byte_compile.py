"""Whether Python files compile, asked of the interpreter that will run them. Also a script: it must not import us."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Flaw:
    path: str
    line: int
    why: str


def flaws(python: Path, tree: Path, paths: list[str]) -> list[Flaw]:
    """In the order of `paths`, which are relative to `tree`. Nothing is run and nothing is written."""
    if not paths:
        return []
    if str(python) == sys.executable:
        return [Flaw(*each) for each in _look(tree, paths)]
    asked = json.dumps([str(tree), paths])
    done = subprocess.run(
        [str(python), "-I", __file__], input=asked, capture_output=True, encoding="utf-8", check=False
    )
    try:
        return [Flaw(*each) for each in json.loads(done.stdout)]
    except (ValueError, TypeError):
        said = done.stderr.strip().splitlines()
        return [Flaw(paths[0], 0, f"{python} cannot look at it: {said[-1] if said else 'no answer'}")]


def _look(tree: Path, paths: list[str]) -> list[tuple[str, int, str]]:
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for path in paths:
            try:
                compile((tree / path).read_bytes(), path, "exec", dont_inherit=True)
            except SyntaxError as err:
                wrong.append((path, err.lineno or 0, err.msg))
            except (ValueError, OSError, RecursionError, MemoryError) as err:
                wrong.append((path, 0, str(err)))
    return wrong


if __name__ == "__main__":
    print(json.dumps(_look(Path((asked := json.load(sys.stdin))[0]), asked[1])))
