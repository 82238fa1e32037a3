"""Fixtures that any suite may use. Imports the standard library, pytest and flodl_wire only."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import random
import signal
import socket
import sys
import zipfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from flodl_wire import environ

Report = TypeVar("Report", pytest.TestReport, pytest.CollectReport)
HAS_TORCH = importlib.util.find_spec("torch") is not None
CI = bool(os.environ.get("CI"))
# What the box that runs CI may lack, as skips say it: hardware, and what a container is not given. Every other thing is
# for .ci/run to install, and a skip for its sake is a failure there: half a suite that is left out proves nothing.
CI_MAY_LACK = (
    "needs a GPU",
    "no nvcc here",
    "a real NVIDIA driver answers first",
    "no /dev/fuse here",
    "this kernel takes no packets away by tc",
    "this kernel takes no longest pause",
    "this box has no address but loopback",
    "is of Python 3.",
)

# Every deadline of the project shrinks tenfold, in this process and in what it starts; and what a developer's shell
# sets for a run of theirs must not reach a test.
for name in [name for name in os.environ if name.startswith(("FLODL_", "FDL_"))]:
    if name not in (environ.NET_TIMEOUT_SCALE, environ.VERBOSITY):
        del os.environ[name]
os.environ.setdefault(environ.NET_TIMEOUT_SCALE, "0.1")

# A suite started in a script's background ignores Ctrl-C, one under nohup the hang-up, and so would all that it starts;
# tests send both to those.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    if CI and not HAS_TORCH:
        raise pytest.UsageError("CI is set and torch is not installed: half of flodl-planes would be left out")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Folders named with_torch hold the tests that need torch; without it they are left out, and the header says so."""
    return True if collection_path.name == "with_torch" and not HAS_TORCH else None


def pytest_report_header(config: pytest.Config) -> str:
    return "torch: here" if HAS_TORCH else "torch: not installed, tests in with_torch folders are left out"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _not_left_out((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _not_left_out((yield))


def _not_left_out(report: Report) -> Report:
    """A failure in place of a skip that CI does not allow."""
    if CI and report.skipped and isinstance(report.longrepr, tuple):
        file, line, reason = report.longrepr
        if not any(words in reason for words in CI_MAY_LACK):
            report.outcome = "failed"
            report.longrepr = (
                f"{file}:{line}: {reason}\nUnder CI nothing is left out that .ci/run can install: have it installed "
                "there, or name it in CI_MAY_LACK of conftest.py"
            )
    return report


# Below what kernels give to whoever dials or binds 0 (32768 on Linux, 49152 elsewhere): nobody gets a port of these by
# chance between a test's look at it and its use.
PORTS = range(12_000, 32_000)


@pytest.fixture
def free_port() -> int:
    """A TCP port of the loopback address that nobody listens on at this moment."""
    while True:
        port = random.SystemRandom().choice(PORTS)  # hypothesis and others seed the usual one alike in every worker
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


DOCKER = """\
#!{python} -S
# A recording stand-in for docker: writes down its words, then does here what the container would do there.
import json, os, sys
words = sys.argv[1:]
if words[-2:] == ["run", "--help"]:
    print("Usage: docker compose run [OPTIONS] SERVICE\\n  -e, --env\\n  --rm\\n  {options}")
    sys.exit(0)
assert words[0] == "compose", words
rest, files, env, hosts = words[1:], [], [], []
while rest[0] == "-f":
    files.append(rest[1])
    rest = rest[2:]
assert rest[0] == "run", rest
rest = rest[1:]
while rest[0].startswith("-"):
    if rest[0] in ("-e", "--add-host"):
        (env if rest[0] == "-e" else hosts).append(rest[1])
        rest = rest[1:]
    rest = rest[1:]
over = [json.load(open(file)) for file in [*files, *os.environ.get("COMPOSE_FILE", "").split(":")] if ".fdl/" in file]
record = dict(words=words, files=files, env=env, hosts=hosts, service=rest[0], argv=rest[1:], cwd=os.getcwd(),
              overlay=over)
with open({record!r}, "a") as file:
    file.write(json.dumps(record) + "\\n")
inside = {{name: os.environ[name] for name in [*env, "PATH", "HOME"] if name in os.environ}}
os.execvpe(rest[1], rest[1:], inside)
"""


class RecordingDocker:
    """A folder with a `docker` for PATH that is none: what it was told is in `runs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = folder / "docker.jsonl"
        folder.mkdir(parents=True)
        self.with_add_host(known=False)

    def with_add_host(self, *, known: bool) -> None:
        """Whether its `compose run` takes --add-host: most versions do not."""
        options = "--add-host list" if known else ""
        path = self.folder / "docker"
        path.write_text(DOCKER.format(python=sys.executable, options=options, record=str(self._record)))
        path.chmod(0o755)

    @property
    def runs(self) -> list[dict[str, Any]]:
        if not self._record.exists():
            return []
        return [json.loads(line) for line in self._record.read_text().splitlines()]


@pytest.fixture
def docker(tmp_path: Path) -> RecordingDocker:
    return RecordingDocker(tmp_path / "docker-stand-in")


STANDIN = """
from torch import version
__version__ = "{version}"
def set_num_threads(count): pass
class eye:
    def __init__(self, size): self.size = size
    def __matmul__(self, other): return self
    def sum(self): return {total}
"""


def make_standin_wheel(folder: Path, *, total: str = "self.size", cuda: str | None = None, version: str = "") -> Path:
    """A torch wheel that is none, a few hundred bytes named as a stand-in, in `folder`. `total`: what the smoke test's
    sum comes to. `version`: that of the torch that is installed here, else 0.0.1.
    """
    version = version or f"{_version_of_torch()}+standin"
    info = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": STANDIN.format(version=version, total=total),
        "torch/version.py": f"cuda = {cuda!r}\nhip = None\n",
        "torch/lib/libtorch.so": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: standin\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    made = folder / f"torch-{version}-py3-none-any.whl"
    with zipfile.ZipFile(made, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return made


def _version_of_torch() -> str:
    try:
        return importlib.metadata.version("torch").partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "0.0.1"


@pytest.fixture
def standin_wheel() -> Callable[..., Path]:
    """Makes one: for whatever only needs a wheel of that name."""
    return make_standin_wheel
