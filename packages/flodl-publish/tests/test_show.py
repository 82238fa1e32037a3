"""Manifests as a publish writes them, as an older one did, and as nobody should."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from flodl_publish import cli_show, main, run_manifest
from flodl_wire.faults import Refused, Transient

GOOD = {
    "cwd": "ddp-bench",
    "build": 'cargo build --release --features "$FDL_GPU_FEATURE"',
    "bin": "target/release/ddp-bench",
    "args": ["--model", "olmo graph", "--epochs", "1"],
    "origin": "file:///home/op/rdl",
    "toolchain": "Python 3.11.7",
    "published_epoch": 1_700_000_000,
    "run": "0123456789abcdef0123456789abcdef",
    "built": True,
}


def write(folder: Path, **changes: object) -> Path:
    path = folder / run_manifest.NAME
    path.write_text(yaml.safe_dump({key: value for key, value in {**GOOD, **changes}.items() if value is not None}))
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    assert run_manifest.read(write(tmp_path)).as_dict() == GOOD


def test_the_seeds_key_for_the_toolchain_is_understood(tmp_path: Path) -> None:
    assert run_manifest.read(write(tmp_path, toolchain=None, rustc="rustc 1.80.0")).toolchain == "rustc 1.80.0"


def test_what_may_be_left_out_may_be_left_out(tmp_path: Path) -> None:
    keys = dict.fromkeys(("cwd", "build", "args", "origin", "toolchain", "built"))
    manifest = run_manifest.read(write(tmp_path, **keys))
    assert (manifest.cwd, manifest.args, manifest.built) == ("", [], True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bin", None),
        ("bin", ""),
        ("bin", "/bin/sh"),
        ("bin", "../../bin/sh"),
        ("bin", 5),
        ("cwd", "../.."),
        ("cwd", "~/x"),
        ("args", "--model x"),
        ("args", [1]),
        ("args", ["a\0b"]),
        ("published_epoch", None),
        ("published_epoch", True),
        ("published_epoch", -1),
        ("published_epoch", 1.5),
        ("run", "0123"),
        ("run", "0123456789ABCDEF0123456789ABCDEF"),
        ("built", "no"),
        ("surprise", 1),
        ("digest", {"sha256": "00", "files": 1, "bytes": 1}),
        ("digest", {"sha256": "0" * 64, "files": True, "bytes": 1}),
        ("digest", 5),
        ("check", "0" * 64),
    ],
)
def test_a_wrong_key_is_named(tmp_path: Path, key: str, value: object) -> None:
    with pytest.raises(Refused) as caught:
        run_manifest.read(write(tmp_path, **{key: value}))
    assert key in caught.value.what


def test_a_bin_beside_its_project_stays_in_the_tree(tmp_path: Path) -> None:
    assert run_manifest.read(write(tmp_path, bin="../target/x")).bin == "../target/x"


def test_what_is_written_is_read_and_an_edit_by_hand_is_seen(tmp_path: Path) -> None:
    made = run_manifest.read(
        write(tmp_path, args=["a b", "ü\n", "", "1", "😀\u2028\x7f\x85", r"\ud83d\ude00", '"', ": #"])
    )
    path = tmp_path / "again.yml"
    path.write_bytes(made.render())
    assert run_manifest.read(path) == made
    path.write_text(path.read_text().replace("ddp-bench", "other-bench"))
    with pytest.raises(Refused, match="edited by hand"):
        run_manifest.read(path)


@pytest.mark.parametrize(
    "data", [b"", b"- a", b"a: [", b"\xff\xfe", b"!!python/object:os.system {}", b"[" * 5000, b"x" * (2 << 20)]
)
def test_what_is_no_manifest_is_refused_in_words(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.yml"
    path.write_bytes(data)
    with pytest.raises(Refused):
        run_manifest.read(path)


def test_no_manifest_may_come_later(tmp_path: Path) -> None:
    with pytest.raises(Transient, match="not published"):
        run_manifest.read(tmp_path / run_manifest.NAME)


def test_a_tree_and_a_served_folder_will_do_as_well(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    path = write(tmp_path / "tree")
    assert run_manifest.path_in(tmp_path) == path
    assert run_manifest.path_in(tmp_path / "tree") == path
    assert run_manifest.path_in(path) == path


def test_people_see_age_command_and_an_unbuilt_run(tmp_path: Path) -> None:
    manifest = run_manifest.read(write(tmp_path, built=False))
    text = cli_show.render(manifest, GOOD["published_epoch"] + 2 * 86400)  # type: ignore[operator]
    assert "2 days ago" in text
    assert "target/release/ddp-bench --model 'olmo graph' --epochs 1" in text
    assert "NOT BUILT" in text


def test_json_is_one_document_on_failure_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["show", str(write(tmp_path)), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["bin"] == GOOD["bin"]
    assert main.main(["show", str(tmp_path / "no"), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "no-manifest"


def test_the_executable_says_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["publsh"]) == 2
    assert "it has: publish, fetch, build, show" in capsys.readouterr().err
    tool = Path(sys.executable).parent / "flodl-publish"
    assert subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout.startswith(
        "flodl-publish"
    )
    assert "show" in subprocess.run([tool, "--help"], capture_output=True, text=True, check=True).stdout
