"""Runs a recipe in a tree and says why it failed: the gate of a publish and the build of a worker are the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from flodl_publish import byte_compile, child, imports, libtorch, recipe
from flodl_publish.recipe import Recipe
from flodl_wire.faults import Fault, Refused, Transient
from flodl_wire.libtorch import Variant

# What a compiler says of a header that is not there, and what brings it: dialling again installs nothing.
_MISSING = re.compile(r"(?:fatal error|error): '?([\w./+-]+\.h(?:pp)?)'?(?:: No such file| file not found)")
_HEADERS = (
    (
        re.compile(r"(hip|rocblas|hipblas|miopen|rccl|rocm|hsa)"),
        "apt install hip-dev rocblas-dev hipblas-dev miopen-hip-dev rccl-dev",
    ),
    (
        re.compile(r"(cuda|cublas|cusparse|cusolver|curand|nvtx|thrust|cub/|nvToolsExt|crt/)"),
        "apt install nvidia-cuda-toolkit",
    ),
    (re.compile(r"cudnn"), "apt install libcudnn9-dev-cuda-12"),
    (re.compile(r"nccl"), "apt install libnccl-dev"),
    (re.compile(r"Python\.h"), "apt install python3-dev"),
)
MANY = 200  # files that the program does not import are looked at up to here
_NO_VENV = re.compile(r"ensurepip is not available|No module named ensurepip")


@dataclass
class Built:
    recipe: str
    seconds: float
    variant: str = ""
    toolchain: str = ""
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Work:
    """`tree` is where it happens, `cwd` and `bin` as in the manifest, `state` a folder for this build alone."""

    tree: Path
    cwd: str
    build: str
    bin: str
    state: Path

    @property
    def project(self) -> Path:
        return self.tree / self.cwd


def build(
    work: Work, variant: Variant | None, say: Callable[[str], None], others: Sequence[str] = (), *, show: bool = True
) -> Built:
    """The recipe, then the check of `bin`. `others`: more Python files of the tree, whose flaws only warn. `show`: its
    output goes to stderr as it comes.

    Raises Transient (build-failed) with the last lines it printed, Refused (missing-headers, no-tool, no-bin) when
    trying again cannot help.
    """
    began = time.monotonic()
    chosen = recipe.choose(work.project, work.build)
    environment = {**os.environ, **libtorch.environment(variant, work.state, os.environ)}
    environment["UV_PROJECT_ENVIRONMENT"] = str(work.project / ".venv")  # a workspace's would be at its root
    environment.pop("VIRTUAL_ENV", None)  # of whoever called us; uv would warn of it, or take it
    if chosen.kind != "nothing":
        against = f" against {variant.label}" if variant else ""
        say(f"building{against}: {chosen.words}")
    for command in recipe.steps(chosen, work.project, variant):
        try:
            ended = child.run(command, cwd=work.project, env=environment, show="  | " if show else "")
        except FileNotFoundError as err:
            raise Transient("build-failed", f"cannot build with {chosen.words}", str(err)) from None
        if ended.code:
            raise _failure(chosen, ended)
        recipe.join_variant(work.project, variant)  # behind each: pip finds torch there, and takes no other
    built = Built(chosen.words, 0.0, variant.name if variant else "", toolchain(chosen, work.project))
    built.warnings = check_bin(work, chosen, others)
    built.seconds = round(time.monotonic() - began, 3)
    return built


def check_bin(work: Work, chosen: Recipe, others: Sequence[str] = ()) -> list[str]:
    """Warnings. Raises Refused (no-bin) when it is not there, Transient (build-failed) when it cannot compile."""
    program = work.project / work.bin
    if not program.is_file():
        what = f"cannot find {work.bin}" + (f" in {work.cwd}" if work.cwd else "")
        why = f"the build ({chosen.words}) did not make it" if chosen.kind != "nothing" else "the tree does not hold it"
        raise Refused("no-bin", what, why, "--bin is relative to the project's folder (--cwd)")
    if program.suffix != ".py":
        if not os.access(program, os.X_OK):
            raise Refused("no-bin", f"cannot run {work.bin}", "it is not executable", f"chmod +x {work.bin}")
        return []
    start = os.path.relpath(program, work.tree)
    reached = imports.closure(work.tree, start, imports.roots(work.cwd, start))
    python = recipe.interpreter(work.project)
    flaws = byte_compile.flaws(python, work.tree, list(reached))
    if flaws:
        first = flaws[0]
        importer = reached[first.path]
        how = f" (imported by {importer})" if importer else ""
        more = f", and {len(flaws) - 1} more" if len(flaws) > 1 else ""
        raise Transient("build-failed", f"cannot compile {first.path}{how}", f"line {first.line}: {first.why}{more}")
    rest = [path for path in others if path not in reached][:MANY]
    return [
        f"{flaw.path} does not compile (line {flaw.line}: {flaw.why}); {work.bin} does not import it"
        for flaw in byte_compile.flaws(python, work.tree, rest)
    ]


def toolchain(chosen: Recipe, project: Path) -> str:
    """ "Python 3.11.7", "rustc 1.80.0 (…)", or "" when it does not say."""
    command = recipe.toolchain_command(chosen, project)
    if command == [sys.executable, "-V"]:
        return f"Python {sys.version.split()[0]}"
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).strip().split("\n")[0]


def _failure(chosen: Recipe, ended: child.Ended) -> Fault:
    text = "\n".join(ended.tail)
    what = f"cannot build with {chosen.words}"
    for header in _MISSING.findall(text):
        for pattern, install in _HEADERS:
            if pattern.search(header):
                return Refused("missing-headers", what, f"{header} is not on this box", install)
    if _NO_VENV.search(text):
        return Refused("no-tool", what, "Python's venv module is not whole on this box", "apt install python3-venv")
    last = [line for line in ended.tail if line.strip()][-8:]
    said = "\n  ".join([f"{ended.how}; its last lines:", *last]) if last else f"{ended.how}, and it said nothing"
    return Transient("build-failed", what, said, "mend it and publish again")
