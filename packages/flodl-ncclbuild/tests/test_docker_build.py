"""The Docker road against a stand-in for the engine: it records its command lines, and does by hand, with a stand-in
toolkit, what the container would. No engine has run these lines here; what is held is that they are these lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from ncclbuild_box import TREE, Box, needs_build

from flodl_ncclbuild.plan import DOCKERFILE

pytestmark = needs_build

ENGINE = """
import shutil
if words[0] == "info": print('28.2.2 ["name=seccomp,profile=builtin"]')
if words[0] == "run":
    mounts = dict(reversed(words[i + 1].removesuffix(":ro").split(":")) for i, w in enumerate(words) if w == "--volume")
    image = next(i for i, w in enumerate(words) if w.startswith("flodl-ncclbuild:"))
    inside = words[image + 1:]
    for there, here in [*mounts.items(), ("/usr/local/cuda", os.environ["STAND_IN_CUDA"])]:
        inside = [w.replace(there, here) for w in inside]
    if inside[0] == "git": shutil.copytree(os.environ["STAND_IN_TREE"], inside[-1])
    else: sys.exit(subprocess.run(inside).returncode)
"""


@pytest.mark.parametrize("offline", [False, True])
def test_the_engine_gets_these_lines_and_the_library_comes_out(box: Box, offline: bool) -> None:
    box.stand_in("docker", ENGINE)
    standing_in = {"STAND_IN_CUDA": str(box.toolkit()), "STAND_IN_TREE": str(TREE)}
    words = ["--source", str(TREE)] if offline else ["--tag", "v2.27.5"]
    answer = box.run("build", "--archs", "7.5;12.0", "--cuda", "12.8", "--jobs", "2", *words, **standing_in)
    assert answer.returncode == 0, answer.stderr
    made = box.builds / "v2.27.5-sm75-sm120" / "lib" / "libnccl.so.2"
    assert answer.stdout == f"      env:\n        LD_PRELOAD: {made}\n"
    lines = box.recorded("docker")
    assert [line[0] for line in lines] == (["info", "build", "run"] if offline else ["info", "build", "run", "run"])
    image = "flodl-ncclbuild:nvidia-cuda-12.8.1-devel-rockylinux8"
    assert lines[1] == [
        *("build", "--file", str(DOCKERFILE), "--build-arg", "BASE=nvidia/cuda:12.8.1-devel-rockylinux8"),
        *("--tag", image, str(DOCKERFILE.parent)),
    ]
    work = box.builds / ".v2.27.5-sm75-sm120.part"
    assert ["--volume", f"{work}:/nccl"] == lines[-1][lines[-1].index("--volume") :][:2]
    assert lines[-1][lines[-1].index("none") - 1 :][:6] == [
        "--network",
        "none",
        image,
        "make",
        "-C",
        "/source" if offline else "/nccl/source",
    ]
    assert not work.exists()


@pytest.mark.parametrize(
    ("fails", "code", "fix"),
    [
        ("build", "cannot prepare an image from nvidia/cuda", "--base-image"),
        ("run", "cannot fetch NCCL", "--source DIR"),
    ],
)
def test_what_an_engine_cannot_do_is_a_sentence(box: Box, fails: str, code: str, fix: str) -> None:
    box.stand_in(
        "docker", ENGINE.replace('if words[0] == "run":', f'if words[0] == "{fails}": sys.exit("no network")\nif 0:')
    )
    answer = box.run("build", "--archs", "9.0", "--tag", "v2.27.5")
    assert answer.returncode == 1
    assert code in answer.stderr
    assert fix in answer.stderr
    assert "no network" in answer.stderr


def test_an_engine_that_writes_elsewhere_is_found_out(box: Box) -> None:
    box.stand_in("docker", "if words[0] == 'info': print('28.2.2 []')")
    answer = box.run("build", "--archs", "9.0", "--tag", "v2.27.5")
    assert answer.returncode == 1
    assert "DOCKER_HOST" in answer.stderr


def test_the_dockerfile_ships_in_the_package() -> None:
    assert Path(DOCKERFILE).name == "Dockerfile.nccl.source"
    assert DOCKERFILE.parent.parent.name == "flodl_ncclbuild"
