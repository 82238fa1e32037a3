"""What lies on the shelf, and the lines to paste."""

from __future__ import annotations

import json
from pathlib import Path

from ncclbuild_box import Box

from flodl_ncclbuild import wiring


def test_builds_are_listed_by_version_and_what_is_no_build_is_left_out(box: Box) -> None:
    for name in ("v2.27.5-sm61-sm120", "v2.9.9-sm70", "mine", ".v2.27.5-sm90.part", "v2.27.5-sm75"):
        library = box.builds / name / "lib" / "libnccl.so.2"
        library.parent.mkdir(parents=True)
        if name != "v2.27.5-sm75":
            library.write_bytes(bytes(2_000_000))
    (box.builds / "v2.27.5-sm90.log").touch()
    lines = box.run("list").stdout.splitlines()
    assert [line.rpartition("  ")[0] for line in lines] == ["NCCL 2.9.9  sm70  2 MB", "NCCL 2.27.5  sm61, sm120  2 MB"]
    document = json.loads(box.run("list", "--json").stdout)
    assert [build["version"] for build in document["builds"]] == ["2.9.9", "2.27.5"]
    assert document["builds"][1]["archs"] == ["sm61", "sm120"]


def test_an_empty_shelf_says_how_to_fill_it(box: Box) -> None:
    answer = box.run("list")
    assert (answer.returncode, answer.stdout) == (0, "")
    assert "fdl nccl build" in answer.stderr
    assert json.loads(box.run("list", "--json").stdout) == {"builds": []}


def test_the_block_is_yaml_whatever_the_path() -> None:
    assert wiring.block(Path("/srv/p/v2.27.5-sm61/lib/libnccl.so.2")) == (
        "      env:\n        LD_PRELOAD: /srv/p/v2.27.5-sm61/lib/libnccl.so.2\n"
    )
    assert (
        wiring.block(Path("/srv/#p/ü/libnccl.so.2"))
        == '      env:\n        LD_PRELOAD: "/srv/#p/\\u00fc/libnccl.so.2"\n'
    )
