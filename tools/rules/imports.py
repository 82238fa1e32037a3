"""The arrows between packages: only towards flodl_wire; and torch only in the files that ranks alone load."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.rules.finding import Finding, Tree

PREFIX = "flodl_"
WIRE = "flodl_wire"
# What runs where no torch may be needed: the executable's own verbs, and what a script may import before torch.
TORCH_FREE_ROOTS = ("main", "cli_hub", "cli_relay", "role.roles", "role.place", "role.promotion")
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
PLANES = "packages/flodl-planes/src/flodl_planes/"


def imported(tree: ast.AST, deep: bool = True) -> Iterator[tuple[str, int]]:
    """Absolute module names that the file imports, with their lines (`from a import b` gives a and a.b).

    Not `deep`: only what importing the file runs, so nothing inside functions or under `if TYPE_CHECKING:`.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno
        elif deep or not (isinstance(node, FUNCTION) or _for_the_type_checker(node)):
            yield from imported(node, deep)


def _for_the_type_checker(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def no_arrow_between_siblings(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        parts = file.split("/")
        if parts[0] != "packages" or len(parts) < 3:
            continue
        own = parts[1].replace("-", "_")
        seen = set()
        for name, line in imported(tree.module(file)):
            top = name.split(".")[0]
            if top.startswith(PREFIX) and top not in (own, WIRE) and (top, line) not in seen:
                seen.add((top, line))
                yield Finding(
                    file,
                    line,
                    f"{own} imports {top}",
                    "packages meet by exec, environment blob or frames, so that each installs and runs alone",
                    "exec the sibling's executable, or move the shared schema to flodl_wire",
                )


def torch_only_in_ranks(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        if not file.startswith("packages/") or "/src/" not in file or file.startswith(PLANES):
            continue
        for name, line in imported(tree.module(file)):
            if name == "torch":
                yield Finding(
                    file,
                    line,
                    "torch is imported",
                    "only the ranks of flodl-planes may need it",
                    "ask the rank, or exec flodl-probe",
                )
    for module in _reached_without_torch(tree):
        file = _file(module)
        for line in sorted(
            {line for name, line in imported(tree.module(file), deep=False) if name.split(".")[0] == "torch"}
        ):
            yield Finding(
                file,
                line,
                "torch is imported at module level",
                "hub, relay and dispatch() load this file, and torch would cost each of them 3 s and 200 MB",
                "import it inside the function that a rank calls, or in a file that ranks alone load",
            )


def _reached_without_torch(tree: Tree) -> list[str]:
    """Modules of flodl_planes that the torch-free roots load: at import, and inside the verbs' functions too."""
    inside = [file.removeprefix(PLANES) for file in tree.python if file.startswith(PLANES)]
    here = {name.removesuffix(".py").replace("/", ".") for name in inside}
    reached: set[str] = set()
    waiting = [root for root in TORCH_FREE_ROOTS if root in here]
    while waiting:
        module = waiting.pop()
        if module in reached:
            continue
        reached.add(module)
        verb = module == "main" or module.startswith("cli_")
        for name, _ in imported(tree.module(_file(module)), deep=verb):
            package, _, rest = name.partition(".")
            if package == "flodl_planes" and rest in here:
                waiting.append(rest)
    return sorted(reached)


def _file(module: str) -> str:
    return f"{PLANES}{module.replace('.', '/')}.py"
