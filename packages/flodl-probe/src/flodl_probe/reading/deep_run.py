"""`--deep`: torch itself is asked, in a process of its own and with the environment that ranks get."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from flodl_probe.facts import Deep, Libtorch

MARKER = "flodl-deep:"
SCRIPT = Path(__file__).parent / "deep_script.py"


def read(project: Path | None, env: Mapping[str, str], libtorch: Libtorch | None, patience: float) -> Deep:
    """Never raises. Whatever goes wrong in there is told as `failure`."""
    own = project / ".venv/bin/python" if project else None
    python = str(own) if own is not None and own.exists() else sys.executable
    environment = {**os.environ, **env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    if libtorch is not None and libtorch.valid_dir:
        environment["PYTHONPATH"] = _before(f"{libtorch.path}/site", environment.get("PYTHONPATH"))
        environment["LD_LIBRARY_PATH"] = _before(f"{libtorch.path}/lib", environment.get("LD_LIBRARY_PATH"))
    process = subprocess.Popen(
        [python, "-c", SCRIPT.read_text("utf-8")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(timeout=patience)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.communicate()
        return Deep(failure=f"it gave no answer in {patience:.0f} s")
    return understand(output, errors, process.returncode)


def understand(output: bytes, errors: bytes, code: int) -> Deep:
    text = output.decode("utf-8", "replace")
    if MARKER in text:
        try:
            return msgspec.json.decode(text.rpartition(MARKER)[2].strip(), type=Deep)
        except msgspec.MsgspecError:
            pass
    words = errors.decode("utf-8", "replace").strip().splitlines()
    ending = f"signal {-code}" if code < 0 else f"exit {code}"
    return Deep(failure=f"it ended with {ending}: {words[-1][:300] if words else 'without a word'}")


def _before(first: str, rest: str | None) -> str:
    return f"{first}{os.pathsep}{rest}" if rest else first
