"""May a host's ranks be forked from one process that has imported torch, and what would that import? Pure.

Yes, when it is known that each of them would come to the same by itself: several ranks without a GPU, one command,
which is a Python script that imports torch and has done nothing before that torch or its libraries might notice.
Whatever is not plainly so is started the ordinary way, which only costs time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from flodl_agent.plan import Child
from flodl_agent.python_command import PythonCommand, read_command
from flodl_wire import environ

PATIENCE = 60.0  # seconds from its start to the last fork; torch takes 2, from a cold disk or a full box 20
# torch imports torch._dynamo by itself, at the first optimizer, which takes as long again as torch
TORCH = ("numpy", "torch", "torch._dynamo", "torch.utils.data")
TRAINER = ("flodl_planes:Trainer",)
_TRACING = ("PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE", "PYTHONTRACEMALLOC", "PYTHONINSPECT")  # of one process each
_ENOUGH = 50  # files of a project that are read to find an import of torch

Read = Callable[[str], "str | None"]  # the text of a file, by its path from the ranks' folder; None when there is none


@dataclass(frozen=True)
class Preload:
    """What the fork server is told (forking.py)."""

    command: PythonCommand
    modules: tuple[str, ...] = TORCH
    patience: float = PATIENCE

    def order(self) -> dict[str, Any]:
        """As the keeper reads it (forking.py)."""
        command = self.command
        return {
            "module": command.name if command.kind == "module" else "",
            "modules": self.modules,
            "head": command.head,
            "before_arguments": command.arguments - command.head,
            "patience_s": self.patience,
            "note": "importing torch, once for all ranks of this host",
        }


def plan_preload(children: list[Child], mode: str, *, gpus: bool, read: Read) -> Preload | None:
    """How the ranks among `children` may be forked; None when they are to be executed."""
    ranks = [child for child in children if child.rank is not None]
    if len(ranks) < 2 or gpus or mode == "torch":
        return None
    env = ranks[0].env
    if is_off(env.get(environ.FORKSERVER, "")) or any(env.get(name) for name in _TRACING):
        return None
    command = read_command(ranks[0].argv)
    modules = what_to_load(command, read) if command else ()
    return Preload(command, modules) if command and modules else None


def is_off(text: str) -> bool:
    """The switch, FLODL_FORKSERVER."""
    return text.lower() in ("0", "off", "no", "false")


def what_to_load(command: PythonCommand, read: Read) -> tuple[str, ...]:
    """Empty unless the program, or a module of the project that it imports, imports torch: and before that sets no
    environment variable and no sys.path, by which torch would become another one.
    """
    if command.kind == "script":
        waiting, folder = [command.name], command.name.rpartition("/")[0]
    else:
        waiting, folder = _files("", command.name), ""
    seen: set[str] = set()
    found: set[str] = set()
    while waiting and len(seen) < _ENOUGH:
        path = waiting.pop(0)
        text = None if path in seen else read(path)
        if text is None:
            continue
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError):
            return ()
        imported = list(_imports(tree))
        torch = min((line for name, level, line in imported if not level and _root(name) == "torch"), default=None)
        if any(torch is None or seen or line < torch for line in _meddling(tree)):
            return ()
        seen.add(path)
        found |= {_root(name) for name, level, _ in imported if not level}
        for name, level, _ in imported:
            waiting += _files(_above(path, level) if level else folder, name)
    if "torch" not in found:
        return ()
    return TORCH + TRAINER if "flodl_planes" in found else TORCH


def _root(name: str) -> str:
    return name.partition(".")[0]


def _files(folder: str, module: str) -> list[str]:
    """Where `module` may lie below `folder`, its packages included."""
    names = module.split(".") if module else []
    steps = ["/".join(filter(None, [folder, *names[: end + 1]])) or "." for end in range(len(names))]
    ends = [f"{steps[-1]}.py", f"{steps[-1]}/__main__.py"] if steps else []
    return [*(f"{step}/__init__.py" for step in steps), *ends]


def _above(path: str, level: int) -> str:
    return "/".join(path.split("/")[:-level])


def _imports(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """(module, dots before it, line) of every import, however deep. What a `from` takes may be a module too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield module, node.level, node.lineno
            for alias in node.names:
                yield ".".join(filter(None, [module, alias.name])), node.level, node.lineno
                if (module, alias.name) == ("flodl_planes", "Trainer"):
                    yield "torch", 0, node.lineno


_CHANGING = frozenset(
    ("append", "clear", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault", "sort", "update")
)  # fmt: skip


def _meddling(tree: ast.AST) -> Iterator[int]:
    """Lines that set an environment variable or sys.path."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.Delete)):
            changed: list[ast.expr] = node.targets
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            changed = [node.target]
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in ("putenv", "unsetenv", "load_dotenv", "addsitedir"):
                yield node.lineno
            changed = [called.value] if isinstance(called, ast.Attribute) and name in _CHANGING else []
        else:
            continue
        if any(_decides(each.value if isinstance(each, ast.Subscript) else each) for each in changed):
            yield node.lineno


def _decides(node: ast.expr) -> bool:
    """Is it os.environ, or what decides where modules are found?"""
    if isinstance(node, ast.Name):
        return node.id in ("environ", "environb")
    if not isinstance(node, ast.Attribute):
        return False
    of_sys = isinstance(node.value, ast.Name) and node.value.id == "sys"
    return node.attr in ("environ", "environb") or (of_sys and node.attr in ("path", "meta_path", "path_hooks"))
