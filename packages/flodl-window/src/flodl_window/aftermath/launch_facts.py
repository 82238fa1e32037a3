"""What a run was started with: command, code, versions, the settings that matter. Asked once, beside the run."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from flodl_window.aftermath.masking import Mask, secret_values
from flodl_window.formation import Charter
from flodl_wire import environ

GIT_PATIENCE = 5.0  # seconds for one question to git: a project on a slow disk is not worth more
MOST_CHANGED = 50  # files named
_THAT_MATTER = (
    "NCCL_",
    "CUDA_",
    "HIP_",
    "ROCR_",
    "HSA_",
    "TORCH",
    "PYTORCH_",
    "GLOO_",
    "OMP_",
    "MKL_",
    "KMP_",
    "OPENBLAS_",
    "NUMEXPR_",
    "MALLOC_",
    "UCX_",
    "FLODL_",
    "FDL_",
    "PYTHON",
    "LD_",
    "MASTER_",
    "SLURM_JOB",
)


def mask_for(charter: Charter, environment: Mapping[str, str]) -> Mask:
    """What of this run must not reach a file: its salt, and what is secret in environment and command line."""
    named = {name: value for name, value in environment.items() if not name.startswith(environ.INTERNAL_PREFIX)}
    values = secret_values({**named, **charter.env}, charter.argv)
    for host in charter.roster:
        values |= secret_values(host.worker.env)
    return Mask({*values, charter.salt_hex})


def that_matter(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how a run goes; ours that carry whole documents are left out."""
    return {
        name: value
        for name, value in sorted(environment.items())
        if name.startswith(_THAT_MATTER) and not name.startswith(environ.INTERNAL_PREFIX)
    }


def facts(charter: Charter, environment: Mapping[str, str], folder: Path, mask: Mask) -> dict[str, Any]:
    """The row that opens events.jsonl; `folder`: the project's."""
    return {
        "run": charter.run,
        "at": round(time.time(), 3),
        "name": environment.get(environ.FDL_CMD, ""),
        "command": mask.argv(charter.argv),
        "mode": charter.mode,
        "project": str(folder),
        "overlay": environment.get(environ.FDL_ENV, ""),
        "controller": f"{charter.controller_host}:{charter.controller_port}",
        "roster": [host.host for host in charter.roster],
        "host": platform.node(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": packages(),
        "environment": mask.environment(that_matter(environment)),
        "run_environment": mask.environment(
            {**charter.env, **{name: value for host in charter.roster for name, value in host.worker.env.items()}}
        ),
    }


def packages() -> dict[str, str]:
    """Versions of what a run rests on, of those that are installed beside us."""
    found = {}
    for name in ("flodl-wire", "flodl-window", "flodl-agent", "flodl-planes", "flodl-cli", "torch", "numpy", "msgspec"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def code(folder: Path) -> dict[str, Any]:
    """Which code: commit, branch, what is changed against it. Empty outside git, or where git does not answer."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return {}
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") or ""
    files = [line[3:] for line in changed.splitlines()]
    return {
        "commit": commit.strip(),
        "branch": (_git(folder, "rev-parse", "--abbrev-ref", "HEAD") or "").strip(),
        "dirty": bool(files),
        "changed": files[:MOST_CHANGED],
    }


def _git(folder: Path, *words: str) -> str | None:
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GIT_PATIENCE,
            env=quiet,
            check=False,
            text=True,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
