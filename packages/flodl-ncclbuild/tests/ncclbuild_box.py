"""A box to build on: a project, and a PATH of stand-ins (none is the real tool) that record what they were asked."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here: apt install gcc")
needs_build = pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("make", "g++", "cc")),
    reason="no make and C++ compiler here: apt install build-essential",
)
TREE = Path(__file__).parent / "stand_in_nccl"
REAL = ("make", "sh", "bash", "g++", "gcc", "cc", "as", "ld", "ln", "mkdir", "printf", "rm", "cat")

# What each stand-in writes down: its words, one JSON list a line.
RECORD = f"""#!{sys.executable}
import json, os, subprocess, sys
from pathlib import Path
words = sys.argv[1:]
with open(os.environ["RECORD"], "a") as file:
    file.write(json.dumps([Path(sys.argv[0]).name, *words]) + "\\n")
"""


class Box:
    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.bin = folder / "bin"
        self.home = folder / "home"
        self.record = folder / "record"
        for made in (self.project, self.bin, self.home):
            made.mkdir()
        (self.project / "fdl.yml").write_text("commands: {}\n")
        for name in REAL:
            path = shutil.which(name)
            if path is not None:
                (self.bin / name).symlink_to(path)
        # beside this link there is no other tool of the project: siblings are looked for in its folder
        (self.bin / "python3").symlink_to(Path(sys.executable).resolve())
        self.environment = {
            **{name: value for name, value in os.environ.items() if name not in ("CUDA_HOME", "VIRTUAL_ENV")},
            "PATH": str(self.bin),
            "HOME": str(self.home),
            "RECORD": str(self.record),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHONWARNINGS": "error",
        }

    def stand_in(self, name: str, body: str, folder: Path | None = None) -> Path:
        """An executable `name` that records its words and then does `body` (Python)."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(RECORD + body)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    def toolkit(self, version: str = "13.0", codes: str = "sm_75 sm_90 sm_120", folder: str = "cuda") -> Path:
        """A stand-in for a CUDA toolkit: its nvcc says a version and cards, and compiles with the C++ compiler."""
        home = self.project.parent / folder
        self.stand_in(
            "nvcc",
            f"""
if words == ["--version"]: print("Cuda compilation tools, release {version}, V{version}.1")
elif words == ["--list-gpu-code"]: print({codes!r}.replace(" ", "\\n"))
else:
    taken = [w for w in words if w.startswith(("-D", "-o", "/")) or w == "-c" or w.endswith(".o")]
    source = Path(words[words.index("-c") + 1]).read_text().replace("__global__", "")
    sys.exit(subprocess.run(["g++", "-x", "c++", "-fPIC", *[w for w in words if w.startswith("-D")], "-c", "-", "-o",
                             words[words.index("-o") + 1]], input=source, text=True).returncode)
""",
            home / "bin",
        )
        (home / "include").mkdir(exist_ok=True)
        (home / "include" / "cuda_runtime.h").touch()
        (home / "lib64").mkdir(exist_ok=True)
        (home / "lib64" / "libcudart_static.a").write_bytes(b"!<arch>\n")
        return home

    def recorded(self, name: str) -> list[list[str]]:
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [words[1:] for words in map(json.loads, lines) if words[0] == name]

    def command(self, *words: str) -> list[str]:
        """The tool as its executable runs it, from the box's own Python."""
        start = "from flodl_ncclbuild.main import main; raise SystemExit(main())"
        return [str(self.bin / "python3"), "-c", start, *words]

    def run(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            cwd=self.project,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def plan(self, *words: str, **environment: str) -> dict[str, Any]:
        answer = self.run("build", "--dry-run", "--json", *words, **environment)
        assert answer.returncode == 0, answer.stderr
        document: dict[str, Any] = json.loads(answer.stdout)
        assert document["result"] is None
        assert not (self.project / "libtorch" / "nccl").exists()
        plan: dict[str, Any] = document["plan"]
        return plan

    @property
    def builds(self) -> Path:
        return self.project / "libtorch" / "nccl" / "builds"

    def site(self, folder: Path, **distributions: str) -> Path:
        """A folder of site-packages with the metadata of these distributions (`torch="2.8.0+cu128"`)."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, version in distributions.items():
            info = folder / f"{name}-{version}.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        return folder


def torch_in(
    site: Path, *, version: str, cuda: str | None, requires: tuple[str, ...] = (), hip: str | None = None
) -> None:
    """A torch as its wheel leaves it: metadata and version.py."""
    info = site / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    lines = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n{lines}")
    (site / "torch" / "lib").mkdir(parents=True)
    (site / "torch" / "version.py").write_text(
        f"from typing import Optional\n__version__ = {version!r}\n"
        f"cuda: Optional[str] = {cuda!r}\nhip: Optional[str] = {hip!r}\n"
    )


def libnccl(path: Path, number: int = 22705) -> Path:
    """A stand-in for a libnccl at `path`; needs a C compiler."""
    path.parent.mkdir(parents=True, exist_ok=True)
    source = f"int ncclGetVersion(int *v) {{ *v = {number}; return 0; }}"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
    return path
