"""What is asked of the box and what is not: through the tool itself, with stand-ins for every program it asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ncclbuild_box import TREE, Box, torch_in

from flodl_wire import environ

ENGINE = """
if words[:1] == ["info"]: print('28.2.2 ["name=seccomp,profile=builtin"]')
"""


def test_flodl_probe_names_the_cards_where_it_is_installed(box: Box) -> None:
    devices = [
        {"vendor": "nvidia", "arch": "sm120"},
        {"vendor": "amd", "arch": "gfx942"},
        {"vendor": "nvidia", "arch": "sm61"},
    ]
    box.stand_in("flodl-probe", f"print({json.dumps(json.dumps({'devices': devices, 'notes': []}))})")
    box.stand_in("nvidia-smi", "print('9.0')")
    box.stand_in("docker", ENGINE)
    plan = box.plan("--tag", "v2.27.5")
    assert (plan["archs"], plan["archs_from"]) == (["sm61", "sm120"], "the GPUs of this box, by flodl-probe")
    assert box.recorded("flodl-probe") == [["devices", "--json"]]
    assert not box.recorded("nvidia-smi")


@pytest.mark.parametrize("probe", [None, "sys.exit(1)", "print('{')", "print('[]')"])
def test_nvidia_smi_is_asked_where_flodl_probe_tells_nothing(box: Box, probe: str | None) -> None:
    if probe is not None:
        box.stand_in("flodl-probe", probe)
    box.stand_in("nvidia-smi", "print('WARNING: infoROM\\n12.0\\n6.1\\n[Not Supported]\\n6.1')")
    box.stand_in("docker", ENGINE)
    assert box.plan("--tag", "v2.27.5")["archs"] == ["sm61", "sm120"]


def test_without_a_card_the_flag_is_named(box: Box) -> None:
    answer = box.run("build", "--dry-run", "--tag", "v2.27.5")
    assert answer.returncode == 1
    assert "flodl-probe is not installed, nvidia-smi is not installed" in answer.stderr
    assert "fix: " in answer.stderr
    assert '--archs "6.1;12.0"' in answer.stderr


def test_the_active_torch_gives_tag_and_cuda(box: Box) -> None:
    site = box.project / "libtorch" / "precompiled" / "cu128" / "site"
    torch_in(site, version="2.8.0+cu128", cuda="12.8", requires=("nvidia-nccl-cu12==2.27.3",))
    (box.project / "libtorch" / ".active").write_text("precompiled/cu128\n")
    box.stand_in("docker", ENGINE)
    plan = box.plan("--archs", "6.1;12.0")
    assert (plan["tag"], plan["cuda"], plan["image"]) == ("v2.27.3-1", "12.8", "nvidia/cuda:12.8.1-devel-rockylinux8")
    assert plan["output"] == str(box.builds / "v2.27.3-sm61-sm120" / "lib" / "libnccl.so.2")
    assert box.plan("--archs", "6.1", "--tag", "v2.27.5")["cuda"] == "12.8"
    assert box.plan("--archs", "6.1", "--cuda", "12.4", "--base-image", "mirror/cuda:x")["image"] == "mirror/cuda:x"


def test_the_project_is_the_one_that_fdl_names_else_the_nearest(box: Box) -> None:
    box.stand_in("docker", ENGINE)
    below = box.project / "a" / "b"
    below.mkdir(parents=True)
    words = ("--archs", "9.0", "--tag", "v2.27.5")
    former = box.project
    box.project = below
    assert box.plan(*words)["output"].startswith(str(former / "libtorch"))
    told = json.dumps({"manifest": "/srv/other/fdl.yml"}).encode().hex()
    assert box.plan(*words, **{environ.CONFIG_JSON: told})["output"].startswith("/srv/other/libtorch/nccl/builds/")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (None, "docker is not installed"),
        ("sys.stderr.write('Cannot connect to the Docker daemon\\n'); sys.exit(1)", "does not answer: Cannot connect"),
        ("sys.exit(1)", "the Docker engine does not answer"),
    ],
)
def test_an_engine_that_does_not_answer_is_a_sentence_with_the_way_on(box: Box, body: str | None, why: str) -> None:
    if body is not None:
        box.stand_in("docker", body)
    home = box.toolkit()
    words = ("build", "--tag", "v2.27.5", "--archs", "9.0")
    answer = box.run(*words, CUDA_HOME=str(home))
    assert answer.returncode == 1
    assert why in answer.stderr
    assert f"fix: use --native (CUDA 13.0 at {home} builds sm90), or start Docker" in answer.stderr
    assert not box.builds.exists()
    assert "cannot build sm61" in box.run(*words[:-1], "6.1", CUDA_HOME=str(home)).stderr
    notes = box.plan(*words[1:], CUDA_HOME=str(home))["notes"]  # a plan is still a plan
    assert any(why in note and "--native" in note for note in notes)


def test_a_rootless_engine_is_seen(box: Box) -> None:
    box.stand_in("docker", 'print(\'28.2.2 ["name=seccomp","name=rootless"]\')')
    plan = box.plan("--tag", "v2.27.5", "--archs", "9.0")
    assert not any("--user" in step["argv"] for step in plan["steps"])


def test_cuda_home_comes_before_the_path_and_a_wrapper_says_where_it_leads(box: Box) -> None:
    words = ("--native", "--tag", "v2.27.5", "--archs", "9.0", "--source", str(TREE))
    stated, other = box.toolkit("12.8", folder="stated"), box.toolkit("13.0", folder="other")
    (box.bin / "nvcc").symlink_to(other / "bin" / "nvcc")
    assert box.plan(*words, CUDA_HOME=str(stated))["cuda"] == "12.8"
    assert box.plan(*words)["cuda"] == "13.0"
    (box.bin / "nvcc").unlink()
    box.stand_in("nvcc", f"sys.stderr.write('#$ _SPACE_= \\n#$ _HERE_={stated}/bin\\n')")
    plan = box.plan(*words)
    assert plan["cuda"] == "12.8"
    assert f"CUDA_HOME={stated}" in plan["steps"][-1]["argv"]


def test_a_cuda_home_without_a_compiler_is_refused(box: Box) -> None:
    answer = box.run("build", "--native", "--tag", "v2.27.5", "--archs", "9.0", CUDA_HOME="/nowhere")
    assert answer.returncode == 1
    assert "cannot use CUDA_HOME=/nowhere" in answer.stderr


def test_an_old_nvcc_that_lists_no_cards_is_looked_up(box: Box) -> None:
    home = box.toolkit("11.8", codes="")
    words = ("--native", "--tag", "v2.27.5", "--source", str(TREE))
    assert box.plan(*words, "--archs", "3.5", CUDA_HOME=str(home))["archs"] == ["sm35"]
    answer = box.run("build", *words, "--archs", "12.0", CUDA_HOME=str(home))
    assert "nvcc 11.8" in answer.stderr
    assert "cannot build sm120" in answer.stderr


def test_tools_that_make_needs_are_named_with_their_packages(box: Box) -> None:
    home = box.toolkit()
    (box.bin / "make").unlink()
    answer = box.run("build", "--native", "--tag", "v2.27.5", "--archs", "9.0", CUDA_HOME=str(home))
    assert answer.returncode == 1
    assert "make, git not found on PATH" in answer.stderr
    assert "apt install make git" in answer.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--archs", "9.0", "--tag", "master"], "no release of NCCL"),
        (["--archs", "x", "--tag", "v2.27.5"], "no compute capability"),
        (["--archs", "9.0", "--tag", "v2.27.5", "--cuda", "9"], "images for"),
        (["--archs", "9.0", "--tag", "v2.27.5", "--jobs", "0"], "1 or more"),
        (["--archs", "9.0", "--tag", "v2.27.5", "--native", "--docker"], "not allowed with"),
        (["--archs", "9.0", "--tag", "v2.27.5", "--native", "--cuda", "12.8"], "they choose the container"),
    ],
)
def test_a_command_line_that_cannot_be_meant_is_exit_2(box: Box, words: list[str], said: str) -> None:
    answer = box.run("build", *words)
    assert answer.returncode == 2
    assert said in answer.stderr
    assert "Traceback" not in answer.stderr


def test_a_source_tree_must_be_one_and_have_the_version_that_was_named(box: Box, tmp_path: Path) -> None:
    words = ("build", "--archs", "9.0", "--dry-run", "--source")
    assert "no such folder" in box.run(*words, "/nowhere").stderr
    assert "no makefiles/version.mk" in box.run(*words, str(tmp_path)).stderr
    answer = box.run(*words, str(TREE), "--tag", "v2.26.2")
    assert answer.returncode == 1
    assert "says 2.27.5, and --tag v2.26.2" in answer.stderr
    answer = box.run(*words, str(TREE), "--json", "--tag", "v2.26.2")
    assert json.loads(answer.stdout)["error"]["code"] == "wrong-source-tree"
