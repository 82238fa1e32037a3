"""How a project is built: the recipe that was stated, else the one its files imply."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flodl_wire.faults import Refused
from flodl_wire.libtorch import Variant

Kind = Literal["shell", "uv", "requirements", "cargo", "nothing"]
WORDS = {
    "uv": "uv sync",
    "requirements": "a .venv from requirements.txt",
    "cargo": "cargo build --release",
    "nothing": "nothing to build",
}
# With a variant these are the variant's, and a second torch beside it would be loaded instead.
_OF_TORCH = re.compile(r"(torch|triton|pytorch-triton.*|triton-rocm|nvidia-.*)\Z")


@dataclass(frozen=True)
class Recipe:
    kind: Kind
    line: str = ""  # of a shell recipe

    @property
    def words(self) -> str:
        return self.line if self.kind == "shell" else WORDS[self.kind]


def choose(project: Path, stated: str = "") -> Recipe:
    """`project`: the folder in the tree. `stated`: a shell line, "" to go by the files."""
    if stated.strip():
        return Recipe("shell", stated)
    if (project / "uv.lock").is_file() or "project" in toml(project / "pyproject.toml"):
        return Recipe("uv")
    if (project / "requirements.txt").is_file():
        return Recipe("requirements")
    if (project / "Cargo.toml").is_file():
        return Recipe("cargo")
    return Recipe("nothing")


def toml(file: Path) -> dict[str, Any]:
    """Empty when there is none. Raises Refused when it is no TOML."""
    try:
        text = file.read_text("utf-8")
        if sys.version_info >= (3, 11):  # here, because most sources hold none and its import is felt
            import tomllib
        else:
            import tomli as tomllib
        parsed: dict[str, Any] = tomllib.loads(text)
        return parsed
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (ValueError, UnicodeDecodeError) as err:
        raise Refused("bad-toml", f"cannot read {file}", str(err)) from None


def steps(recipe: Recipe, project: Path, variant: Variant | None) -> Iterator[list[str]]:
    """The commands, in order; each one is to be run before the next is asked for. Raises Refused when a tool is
    missing, with the line that installs it.
    """
    if recipe.kind == "shell":
        yield ["/bin/sh", "-c", recipe.line]
    elif recipe.kind == "uv":
        uv = _tool("uv", "pip install uv")
        if variant is not None and variant.site is not None and _lock(project) is None:
            yield [uv, "lock"]  # it names what torch would bring along
        yield [uv, "sync", *_left_to_the_variant(project, variant)]
    elif recipe.kind == "cargo":
        yield [_tool("cargo", "install Rust: https://rustup.rs"), "build", "--release"]
    elif recipe.kind == "requirements":
        python = str(project / ".venv" / "bin" / "python")
        if not Path(python).exists():
            yield [sys.executable, "-m", "venv", ".venv"]
        yield [python, "-m", "pip", "install", "--disable-pip-version-check", "-r", "requirements.txt"]


def join_variant(project: Path, variant: Variant | None) -> None:
    """The variant's packages become part of the project's environment by a `.pth` file; without one it goes."""
    for site in (project / ".venv" / "lib").glob("python3*/site-packages"):
        pointer = site / "flodl-libtorch.pth"
        if variant is not None and variant.site is not None:
            pointer.write_text(f"{variant.site}\n")
        else:
            pointer.unlink(missing_ok=True)


def toolchain_command(recipe: Recipe, project: Path) -> list[str]:
    """What says which toolchain this is."""
    if recipe.kind == "cargo" or (recipe.kind == "shell" and re.search(r"\bcargo\b", recipe.line)):
        return ["rustc", "-V"]
    return [str(interpreter(project)), "-V"]


def interpreter(project: Path) -> Path:
    """The one that runs a `*.py`: the project's own where the recipe made one, else ours."""
    own = project / ".venv" / "bin" / "python"
    return own if own.exists() else Path(sys.executable)


def _left_to_the_variant(project: Path, variant: Variant | None) -> list[str]:
    if variant is None or variant.site is None:
        return []
    names = {"torch", "triton"}
    if lock := _lock(project):
        packages = toml(lock).get("package", [])
        names |= {str(each.get("name")) for each in packages if _OF_TORCH.match(str(each.get("name")))}
    return [word for name in sorted(names) for word in ("--no-install-package", name)]


def _lock(project: Path) -> Path | None:
    """uv's, of the project or of the workspace that it is a member of."""
    return next((folder / "uv.lock" for folder in (project, *project.parents) if (folder / "uv.lock").is_file()), None)


def _tool(name: str, install: str) -> str:
    import shutil

    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise Refused("no-tool", f"cannot build without {name}", "it is not installed on this box", install)
    return found
