"""pip, asked for torch: what it would install, and the installing. Its output is shown; what it means is said here."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl_agent import descent
from flodl_agent.starting import start
from flodl_agent.torch_build import label_of
from flodl_wire.faults import Broken, Fault, Refused, Transient, printable

_NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|ConnectionError|ConnectionResetError|ProtocolError|RemoteDisconnected"
    r"|IncompleteRead|Temporary failure in name resolution|Name or service not known|Max retries exceeded|timed out"
    r"|Network is unreachable|Connection (?:refused|broken|reset)|5\d\d (?:Server|Client) Error|HTTP error 5"
)
_SHOWN = 300  # characters of a line
_NO_ROOM = re.compile(r"No space left|Errno 28|Disk quota exceeded")
_NOBODY_HAS_IT = re.compile(r"No matching distribution found for (\S+)")


_LABEL = re.compile(r"(cpu|cu\d{3}|rocm\d+(?:\.\d+)*)\Z")
_CUDA = re.compile(r"cuda-toolkit|nvidia-cuda-runtime(?:-cu\d+)?\Z")  # their versions are CUDA's own


@dataclass(frozen=True)
class Found:
    """The torch that pip would take. `rest`: what comes with it, name → version."""

    version: str
    url: str
    rest: Mapping[str, str]

    @property
    def label(self) -> str:
        """Which build it is, as far as its name and what it needs say; "" unknown."""
        local = self.version.partition("+")[2]
        if _LABEL.match(local):
            return local
        for name, version in self.rest.items():
            if _CUDA.match(name):
                return label_of(version, None)
        return ""


def resolve(words: Sequence[str], what: str) -> Found:
    """What ``pip install WORDS`` would take. Nothing large is fetched where the index publishes metadata (PEP 658).

    Raises as `install`.
    """
    with tempfile.TemporaryDirectory(prefix="flodl-pip-") as folder:
        report = Path(folder) / "report.json"
        target = ["--target", f"{folder}/none", "--dry-run", "--report", str(report), "--quiet", "--retries", "1"]
        try:
            _pip([*target, *words], what, show=False)
        except Broken as fault:
            if "no such option" in fault.why:  # before pip 22.2: what it gives is seen when it is there
                return Found("", "", {})
            raise
        entries = json.loads(report.read_text("utf-8"))["install"]
    named = {str(each["metadata"]["name"]).lower(): each for each in entries}
    torch = named.get("torch")
    if torch is None:
        raise Broken("pip-failed", what, "pip resolved it and named no torch")
    url = re.sub(r"(?<=://)[^/@]*@", "", str(torch["download_info"]["url"]))
    rest = {name: str(each["metadata"]["version"]) for name, each in sorted(named.items()) if name != "torch"}
    return Found(str(torch["metadata"]["version"]), url, rest)


def install(words: Sequence[str], site: Path, what: str) -> None:
    """``pip install --target site WORDS``, with its progress bar where stderr is a terminal. What it unpacks meanwhile
    lies beside `site`, in a folder that goes.

    Raises Refused when no index has it, Transient when none answered, Broken for a full disk.
    """
    scratch = site.with_name("pip")
    scratch.mkdir()
    try:
        _pip(["--target", str(site), "--upgrade", "--no-compile", *words], what, show=True, scratch=scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _pip(words: Sequence[str], what: str, *, show: bool, scratch: Path | None = None) -> None:
    us = os.getpid()
    process = start(
        [*_command(what), "install", "--no-input", "--disable-pip-version-check", *words],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno() if show else subprocess.DEVNULL,  # the bar is drawn there; our stdout is a result
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONWARNINGS": "ignore", **({"TMPDIR": str(scratch)} if scratch else {})},
        start_new_session=True,
        preexec_fn=lambda: descent.die_with(us),
        text=True,
        errors="replace",
    )
    assert process.stderr
    said: list[str] = []
    with process.stderr:
        try:
            for line in process.stderr:
                said.append(line.rstrip())
                show = show and not line.startswith("Traceback")  # of a full disk it is megabytes
                if show and not line.startswith("WARNING: Location"):
                    print(printable(line.rstrip()[:_SHOWN]), file=sys.stderr, flush=True)
            process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if process.returncode:
        raise failed(what, said, process.returncode)


def _command(what: str) -> list[str]:
    """pip, installed here or as the wheel that Python brings along (environments made by uv have none)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    bundle = importlib.util.find_spec("ensurepip")
    folder = Path(bundle.origin).parent / "_bundled" if bundle and bundle.origin else Path("/usr/share/python-wheels")
    for wheel in (*folder.glob("pip-*.whl"), *Path("/usr/share/python-wheels").glob("pip-*.whl")):
        return [sys.executable, str(wheel / "pip")]  # pip runs from its wheel
    fix = f"install it for {sys.executable}: uv pip install pip, or apt install python3-venv"
    raise Refused("no-tool", what, f"there is no pip for {sys.executable}", fix)


def failed(what: str, said: Sequence[str], code: int) -> Fault:
    """What pip's words mean. Pure."""
    text = "\n".join(said)
    last = next((line for line in reversed(said) if line.startswith("ERROR:")), said[-1] if said else f"exit {code}")
    if _NO_ROOM.search(text):
        return Broken("no-space", what, "there is no space left for it", "make room: torch wants 0.7 to 8 GB")
    if _NETWORK.search(text):
        fix = "try again; or name another index with --index, or a folder of wheels with --find-links"
        return Transient("no-index", what, "the package index does not answer", fix)
    if found := _NOBODY_HAS_IT.search(text):
        fix = "another --torch VERSION, --index or --find-links"
        return Refused("no-wheel", what, f"no index that was asked has {found[1]} for this Python and system", fix)
    return Broken("pip-failed", what, f"pip: {last.removeprefix('ERROR: ')}", "its own words stand above")
