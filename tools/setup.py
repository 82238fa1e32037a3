"""`make setup`: a virtual environment in .venv that holds torch and the eight packages, editable.

Runs under the bare interpreter, so it imports the standard library alone and parses on old Pythons, to be able to say
that they are too old. What it did is remembered as a fingerprint of the pyproject files: the second call takes a few
milliseconds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "flodl-setup"
TORCH = "torch==2.13.0"  # the newest that exists as a CPU build for every Python from 3.10 on; ranks accept >= 2.2
PACKAGES = ["wire[seal]", "window", "agent", "planes", "publish", "probe[yaml]", "ncclbuild", "cli"]


def fingerprint() -> str:
    """Of everything that decides what is in .venv."""
    digest = hashlib.sha256()
    for path in sorted([ROOT / "pyproject.toml", Path(__file__), *ROOT.glob("packages/*/pyproject.toml")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def stop(what: str, fix: str) -> None:
    print(f"setup: {what}\nfix: {fix}", file=sys.stderr)
    raise SystemExit(1)


def run(*command: object) -> None:
    words = [str(word) for word in command]
    print("  $ " + " ".join(words), flush=True)
    code = subprocess.run(words, cwd=ROOT, check=False).returncode
    if code:
        stop(f"that command ended with exit code {code}", "its own words stand above; then `make setup` again")


def make_venv() -> None:
    if (
        PYTHON.exists()
        and subprocess.run([PYTHON, "-c", "import pip"], capture_output=True, check=False).returncode == 0
    ):
        return
    try:
        import ensurepip  # noqa: F401 - Debian ships it apart, in python3-venv
        import venv  # noqa: F401
    except ImportError:
        stop(
            f"{sys.executable} cannot make virtual environments: its venv module is not installed",
            f"on Debian or Ubuntu: sudo apt-get install python{sys.version_info[0]}.{sys.version_info[1]}-venv",
        )
    run(sys.executable, "-m", "venv", "--clear", VENV)


def install_uv() -> None:
    """Before an outer torch is lent: its neighbours would then look installed to pip, a uv among them."""
    if not (VENV / "bin" / "uv").exists():
        run(PYTHON, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "uv")


def torch_in_venv() -> str | None:
    """The version of the torch that .venv can import, without importing it (that takes seconds)."""
    code = (
        "import importlib.metadata as m, importlib.util as u; print(u.find_spec('torch') and m.version('torch') or '')"
    )
    found = subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=False)
    return found.stdout.strip() or None


def lend_outer_torch() -> None:
    """When the interpreter that runs this has torch, put its folder at the end of .venv's import path.

    A .pth file and not --system-site-packages: it also serves when that interpreter belongs to a virtual environment of
    its own, and what .venv installs itself still comes first.
    """
    import importlib.util

    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.origin:
        return
    folder = Path(spec.origin).parent.parent
    site = subprocess.run(
        [PYTHON, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (Path(site) / "outer-torch.pth").write_text(f"{folder}\n")
    print(f"  the torch of {sys.executable} is used as it is (outer-torch.pth in .venv points at {folder})")


def install_torch() -> None:
    version = torch_in_venv()
    if version is None:
        lend_outer_torch()
        version = torch_in_venv()
    if version is not None:
        print(f"  torch {version} is there")
        return
    cuda = "" if platform.system() == "Darwin" else " as a CPU build, about 3 GB where pip offers its CUDA build"
    print(f"  fetching {TORCH} by pip: 200 MB{cuda}; a minute, or what your network takes")
    print("  (to choose the build yourself, install torch into .venv, or into the Python that makes it, first)")
    run(PYTHON, "-m", "pip", "install", "--disable-pip-version-check", TORCH)


def install_workspace() -> None:
    print("  fetching the packages' own needs and the tools that check them: about 80 MB, half a minute")
    editable = [word for name in PACKAGES for word in ("--editable", f"packages/flodl-{name}")]
    # no package is asked for with its [torch] extra here: uv would fetch a build of its own choice
    run(VENV / "bin" / "uv", "pip", "install", "--quiet", "--python", PYTHON, "--group", "dev", *editable)


def main() -> int:
    if sys.version_info < (3, 10):  # noqa: UP036 - the one file that an older Python gets to read
        stop(
            f"this is Python {platform.python_version()}, and flodl needs 3.10 or newer",
            "name a newer one: make setup PYTHON=python3.12",
        )
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text() == fingerprint():
        return 0
    print(f"setting up {os.path.relpath(VENV)} with Python {platform.python_version()}:", flush=True)
    make_venv()
    install_uv()
    install_torch()
    install_workspace()
    STAMP.write_text(fingerprint())
    print("  .venv is ready")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
