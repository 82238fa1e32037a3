"""The sidecar, by its own reader and by coreutils."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_publish import sidecar
from flodl_publish.tree import FileStat, Tree

PARTS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda part: part not in (".", "..")
)
PATHS = st.lists(PARTS, min_size=1, max_size=3).map("/".join)


@given(st.dictionaries(PATHS, st.just("ab" * 32)), st.dictionaries(PATHS, PARTS), st.lists(PATHS, unique=True))
def test_what_is_written_is_read(files: dict[str, str], links: dict[str, str], dirs: list[str]) -> None:
    tree = Tree({path: FileStat(0, 0, 0, 0, 0o644 + 0o111 * (len(path) % 2)) for path in files}, links, dirs)
    listing = sidecar.parse(sidecar.render(files, tree))
    assert (listing.files, listing.links, sorted(listing.dirs)) == (files, links, sorted(dirs))
    assert listing.executable == {path for path in files if len(path) % 2}


def test_sha256sum_reads_it(tmp_path: Path) -> None:
    names = ["a b", "tab\there", "line\nend", "back\\slash", "ü", " lead", "-x", "#hash"]
    for name in names:
        (tmp_path / name).write_text(name)
    hashes = {name: hashlib.sha256(name.encode()).hexdigest() for name in names}
    (tmp_path / "sums").write_bytes(sidecar.render(hashes, Tree(links={"l": "x"}, dirs=["d"])))
    done = subprocess.run(["sha256sum", "--check", "--strict", "sums"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("OK") == len(names)


def test_a_name_of_undecodable_bytes_survives() -> None:
    assert list(sidecar.parse(sidecar.render({"\udcff": "ab" * 32}, Tree())).files) == ["\udcff"]


HASH = "ab" * 32
WRONG = ("x", "ab  file", f"{HASH}  ../x", f"{HASH}  /x", f"{HASH}  ", f"{HASH.upper()}  x", "# dir ..", "# run a/../b")


@pytest.mark.parametrize("line", WRONG)
def test_what_leads_out_or_is_no_listing_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        sidecar.parse(line.encode() + b"\n")
