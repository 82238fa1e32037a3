"""The plan, from what is known alone: ten mixes of cards and CUDA, the commands to the letter, the paths refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from flodl_ncclbuild import archs, toolkits
from flodl_ncclbuild.plan import DOCKERFILE, REPOSITORY, Docker, Native, Plan, make_plan
from flodl_ncclbuild.tag import Version
from flodl_ncclbuild.toolchain import Toolchain
from flodl_wire.faults import Refused

BUILDS = Path("/srv/p/libtorch/nccl/builds")
HERE = Toolchain(Path("/usr/local/cuda"), "13.0", frozenset({75, 80, 86, 89, 90, 100, 120}))


def planned(
    road: Native | Docker,
    cards: tuple[int, ...] = (90,),
    *,
    builds: Path = BUILDS,
    source: Path | None = None,
) -> Plan:
    return make_plan(
        version=Version(2, 27, 5),
        tag="v2.27.5-1",
        tag_from="--tag",
        archs=cards,
        archs_from="--archs",
        road=road,
        builds=builds,
        source=source,
    )


def docker(cards: tuple[int, ...], torch: str | None) -> Docker:
    toolkit = toolkits.choose(cards, torch=torch).toolkit
    return Docker(toolkit.cuda, toolkit.image, "1000:1000", "flodl-nccl-7")


@pytest.mark.parametrize(
    ("cards", "torch", "cuda", "folder"),
    [
        ("6.1", "12.6", "12.6.3", "sm61"),
        ("6.1;12.0", "12.8", "12.8.1", "sm61-sm120"),
        ("6.1;12.0", "13.0", "12.9.1", "sm61-sm120"),
        ("7.0;8.0;9.0", "12.4", "12.4.1", "sm70-sm80-sm90"),
        ("9.0", None, "12.9.1", "sm90"),
        ("10.0;10.3", "12.8", "12.9.1", "sm100-sm103"),
        ("7.5;12.0", "13.0", "13.0.2", "sm75-sm120"),
        ("11.0", "13.0", "13.0.2", "sm110"),
        ("3.5;8.0", "11.8", "11.8.0", "sm35-sm80"),
        ("12.1;8.9;8.6", "12.9", "12.9.1", "sm86-sm89-sm121"),
    ],
)
def test_ten_mixes_of_cards_and_cuda_versions(cards: str, torch: str | None, cuda: str, folder: str) -> None:
    numbers = archs.parse(cards)
    plan = planned(docker(numbers, torch), numbers)
    assert plan.output == BUILDS / f"v2.27.5-{folder}" / "lib" / "libnccl.so.2"
    assert plan.log == BUILDS / f"v2.27.5-{folder}.log"
    image, _, make = plan.steps
    assert f"BASE=nvidia/cuda:{cuda}-devel-rockylinux8" in image.argv
    flags = make.argv[-1].removeprefix("NVCC_GENCODE=").split()
    assert flags[:-1] == [f"-gencode=arch=compute_{n},code=sm_{n}" for n in numbers]
    assert flags[-1] == f"-gencode=arch=compute_{numbers[-1]},code=compute_{numbers[-1]}"


def test_the_docker_road_to_the_letter() -> None:
    plan = planned(docker((61, 120), "12.8"), (61, 120))
    work = "/srv/p/libtorch/nccl/builds/.v2.27.5-sm61-sm120.part"
    image = "flodl-ncclbuild:nvidia-cuda-12.8.1-devel-rockylinux8"
    run = [
        *("docker", "run", "--rm", "--init", "--name", "flodl-nccl-7", "--env", "HOME=/nccl"),
        *("--security-opt", "label=disable", "--user", "1000:1000", "--volume", f"{work}:/nccl"),
    ]
    assert [list(step.argv) for step in plan.steps] == [
        [
            *("docker", "build", "--file", str(DOCKERFILE)),
            *("--build-arg", "BASE=nvidia/cuda:12.8.1-devel-rockylinux8", "--tag", image, str(DOCKERFILE.parent)),
        ],
        [*run, image, "git", "clone", "--depth", "1", "--branch", "v2.27.5-1", REPOSITORY, "/nccl/source"],
        [
            *(*run, "--network", "none", image, "make", "-C", "/nccl/source", "-j6", "src.build"),
            *("BUILDDIR=/nccl/build", "CUDA_HOME=/usr/local/cuda"),
            "NVCC_GENCODE=-gencode=arch=compute_61,code=sm_61 -gencode=arch=compute_120,code=sm_120 "
            "-gencode=arch=compute_120,code=compute_120",
        ],
    ]
    assert DOCKERFILE.is_file()
    assert "ARG BASE\nFROM ${BASE}" in DOCKERFILE.read_text()


def test_a_tree_that_is_there_is_mounted_read_only_and_nothing_is_fetched() -> None:
    plan = planned(docker((90,), None), source=Path("/src/nccl"))
    assert [step.name for step in plan.steps] == ["image", "make"]
    make = plan.steps[-1].argv
    assert make[make.index("/src/nccl:/source:ro") - 1] == "--volume"
    assert make[make.index("-C") + 1] == "/source"


def test_a_rootless_engine_gets_no_user() -> None:
    plan = planned(Docker("12.9", "img", None, "n"))
    assert not any("--user" in step.argv for step in plan.steps)


def test_the_native_road_to_the_letter() -> None:
    plan = planned(Native(HERE), (75, 120))
    work = "/srv/p/libtorch/nccl/builds/.v2.27.5-sm75-sm120.part"
    assert [list(step.argv) for step in plan.steps] == [
        ["git", "clone", "--depth", "1", "--branch", "v2.27.5-1", REPOSITORY, f"{work}/source"],
        [
            *(
                "make",
                "-C",
                f"{work}/source",
                "-j6",
                "src.build",
                f"BUILDDIR={work}/build",
                "CUDA_HOME=/usr/local/cuda",
            ),
            "NVCC_GENCODE=-gencode=arch=compute_75,code=sm_75 -gencode=arch=compute_120,code=sm_120 "
            "-gencode=arch=compute_120,code=compute_120",
        ],
    ]
    offline = planned(Native(HERE), (75, 120), source=Path("/src/nccl"))
    assert [step.name for step in offline.steps] == ["make"]
    assert offline.steps[0].argv[2] == "/src/nccl"


def test_a_card_that_this_nvcc_cannot_build_is_refused_with_those_it_can() -> None:
    with pytest.raises(Refused, match=r"nvcc 13\.0 at /usr/local/cuda cannot build sm61; it can build sm75, .*sm120"):
        planned(Native(HERE), (61, 90))


@pytest.mark.parametrize("folder", ["/srv/my project/builds", "/srv/a:b/builds", "/srv/a\tb"])
def test_a_path_that_ld_preload_would_split_is_refused(folder: str) -> None:
    with pytest.raises(Refused, match="LD_PRELOAD"):
        planned(Native(HERE), builds=Path(folder))


def test_paths_that_make_or_docker_would_split_are_refused() -> None:
    with pytest.raises(Refused, match="make splits paths"):
        planned(Native(HERE), source=Path("/src/my nccl"))
    with pytest.raises(Refused, match="make splits paths"):
        planned(Native(HERE._replace(home=Path("/opt/my cuda"))))
    with pytest.raises(Refused, match="docker splits"):
        planned(docker((90,), None), source=Path("/src/a:b"))


def test_the_plan_reads_the_same_as_text_and_as_json() -> None:
    plan = planned(docker((61, 120), "12.8"), (61, 120))
    document, text = plan.as_dict(), plan.text()
    for key in ("version", "tag", "image", "output", "log"):
        assert str(document[key]) in text
    assert document["archs"] == ["sm61", "sm120"]
    assert document["road"] == "docker"
    assert planned(Native(HERE)).as_dict()["cuda"] == "13.0"
