"""A libnccl built here is the one that ranks load: `fdl nccl build`, its lines pasted, a run.

The source tree is a stand-in, with NCCL's make interface and one function.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from integration.conftest import Make
from integration.project import Project
from tools.pages import ROOT

TREE = ROOT / "packages" / "flodl-ncclbuild" / "tests" / "stand_in_nccl"
ASK = """
import ctypes, os
version = ctypes.c_int()
ctypes.CDLL(None).ncclGetVersion(ctypes.byref(version))  # what the process holds already: the preloaded one
print("nccl", version.value, os.environ["LD_PRELOAD"], flush=True)
"""
OVERLAY = """\
cluster:
  controller: {{host: 127.0.0.1, port: {port}, path: {path}}}
  workers:
    - host: {host}
      local_devices: cpu:2
      path: {path}
{block}"""


def an_arch_of_this_nvcc(made: Project) -> str:
    """Skips, by name, where there is no CUDA toolkit."""
    answer = made.fdl("nccl", "build", "--native", "--source", str(TREE), "--archs", "1.0", "--json")
    error = json.loads(answer.stdout)["error"]
    if error["code"] == "no-toolkit":
        pytest.skip(f"no nvcc here: {error['why']}")
    assert error["code"] == "arch-not-buildable", error
    return str(error["why"].rpartition("it can build ")[2].split(", ")[0])


def test_the_library_that_is_built_and_pasted_is_the_one_that_ranks_load(project: Make) -> None:
    made = project(ask={"run": "python ask.py", "mode": "torch"})
    (made.folder / "ask.py").write_text(ASK)
    arch = an_arch_of_this_nvcc(made)
    answer = made.fdl("nccl", "build", "--native", "--source", str(TREE), "--archs", arch)
    assert answer.returncode == 0, answer.stderr
    library = made.folder / "libtorch" / "nccl" / "builds" / f"v2.27.5-{arch}" / "lib" / "libnccl.so.2"
    assert str(library) in answer.stdout
    assert f"{library}: NCCL 2.27.5\nfor {arch}, PTX {arch}" in made.fdl("nccl", "check", str(library)).stdout
    overlay = OVERLAY.format(port=made.port, path=made.folder, host=socket.gethostname(), block=answer.stdout)
    Path(made.folder, "fdl.one.yml").write_text(overlay)
    run = made.start("@one", "ask")
    run.done()
    for rank in (0, 1):
        run.line(rf"^\[\S+:{rank}\] nccl 22705 {library}", within=1)


def test_the_plan_of_a_project_is_made_from_any_folder_in_it(project: Make) -> None:
    made = project(ask={"run": "true"})
    words = ("nccl", "build", "--dry-run", "--json", "--tag", "v2.27.5", "--archs", "6.1;12.0")
    document = json.loads(made.fdl(*words).stdout)
    assert document["result"] is None
    assert document["plan"]["output"] == str(
        made.folder / "libtorch" / "nccl" / "builds" / "v2.27.5-sm61-sm120" / "lib" / "libnccl.so.2"
    )
    assert not (made.folder / "libtorch").exists()
