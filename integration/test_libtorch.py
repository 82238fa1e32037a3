"""Which libtorch variant a roster rank runs with: `arch:` of its worker, its host's pointer, that of the project."""

from __future__ import annotations

import socket

import pytest
from integration.conftest import Make
from integration.project import Project

# A rank that says which variant it imports from, and where its libraries would come from first.
TELL = """
import os
import of_variant
print("taken", of_variant.NAME, os.environ["LD_LIBRARY_PATH"].split(":")[0].split("/libtorch/")[1], flush=True)
"""
VARIANTS = ("builds/mine", "builds/the-hosts", "precompiled/cpu")


def with_variants(project: Make, arch: str) -> Project:
    made = project(ranks=1, tell={"run": "python tell.py", "mode": "torch"})
    (made.folder / "tell.py").write_text(TELL)
    for name in VARIANTS:
        site = made.folder / "libtorch" / name / "site"
        site.mkdir(parents=True)
        (site.parent / "lib").mkdir()
        (site / "of_variant.py").write_text(f"NAME = {name!r}\n")
    (made.folder / "libtorch/.active").write_text("precompiled/cpu\n")
    overlay = made.one_box(1)
    if arch:
        overlay["workers"][0]["arch"] = arch
    made.write("fdl.one.yml", {"cluster": overlay})
    return made


@pytest.mark.parametrize(
    ("arch", "pointed", "taken"),
    [
        ("builds/mine", "builds/the-hosts", "builds/mine"),
        ("mine", "", "builds/mine"),
        ("", "builds/the-hosts", "builds/the-hosts"),
        ("", "", "precompiled/cpu"),
    ],
)
def test_a_roster_rank_imports_the_variant_of_its_worker(project: Make, arch: str, pointed: str, taken: str) -> None:
    made = with_variants(project, arch)
    if pointed:
        (made.folder / f"libtorch/.active.{socket.gethostname()}").write_text(pointed)
    run = made.start("@one", "tell")
    run.done()
    assert f"taken {taken} {taken}/lib" in run.text


def test_a_variant_that_is_not_there_fails_the_run_by_name_with_the_way_to_get_it(project: Make) -> None:
    run = with_variants(project, "cu128").start("@one", "tell")
    assert run.wait(within=30) == 1
    assert "Traceback" not in run.text
    assert "cannot use the libtorch variant cu128" in run.text and "fdl libtorch download cu128" in run.text
    run.nothing_left(5)
