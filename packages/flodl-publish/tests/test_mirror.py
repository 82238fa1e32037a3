"""A folder becomes a tree, and only what differs is touched."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from publish_worlds import content, write

from flodl_publish import copying
from flodl_publish.index import Index
from flodl_publish.mirror import Mirrored, mirror
from flodl_publish.selection import select
from flodl_publish.tree import FileStat
from flodl_wire.faults import Transient

OLD_NS = 1_600_000_000_123_456_789


class Pair:
    def __init__(self, root: Path) -> None:
        self.source, self.target = root / "source", root / "target"
        self.source.mkdir()
        self.known, self.ours = Index(), Index()

    def go(self, *, strict: bool = True) -> Mirrored:
        return mirror(self.source, select(self.source), self.target, self.known, self.ours, strict=strict)

    def settle(self) -> None:
        """Files whose times are long past, as those of a project are (only ctime cannot be set)."""
        for each in self.source.rglob("*"):
            if each.is_file() and not each.is_symlink():
                os.utime(each, ns=(OLD_NS, OLD_NS))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def rested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flodl_publish.index.TICK_NS", -(10**18))  # no file counts as just changed


def test_an_unchanged_tree_costs_no_reading(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    rested(monkeypatch)
    write(pair.source, {"a": "1", "b/c": "2"})
    assert pair.go().copied == 2
    monkeypatch.setattr(copying, "copy", lambda *_: pytest.fail("it read a file"))
    again = pair.go()
    assert (again.copied, again.removed, set(again.hashes)) == (0, 0, {"a", "b/c"})


def test_a_file_changed_within_a_tick_of_its_reading_is_read_again(pair: Pair) -> None:
    write(pair.source, {"a": "1"})
    pair.go()
    assert pair.known.hashes == {}  # just written: its times may stay when it changes now
    assert pair.go().copied == 1


def test_contents_modes_times_and_links_arrive(pair: Pair) -> None:
    write(pair.source, {"a b": "1", "x/run.sh": "#!", "line\nend": "3", "ü/é": ""})
    (pair.source / "x/run.sh").chmod(0o755)
    (pair.source / "l").symlink_to("x")
    (pair.source / "e").mkdir()
    Path(os.fsdecode(os.fsencode(pair.source) + b"/\xff")).write_text("raw")
    pair.settle()
    pair.go()
    assert content(pair.target) == content(pair.source)
    assert (pair.target / "e").is_dir()


def test_what_vanished_goes_and_kinds_change_places(pair: Pair) -> None:
    write(pair.source, {"gone/x": "", "file": "1", "folder/y": "", "Case": ""})
    (pair.source / "link").symlink_to("folder")
    pair.go()
    for name in ("gone/x", "file", "folder/y", "Case", "link"):
        (pair.source / name).unlink()
    (pair.source / "gone").rmdir()
    (pair.source / "folder").rmdir()
    write(pair.source, {"file/now": "", "folder": "", "case": "", "link/z": ""})
    pair.go()
    assert content(pair.target) == content(pair.source)
    assert not (pair.target / "gone").exists()


def test_nothing_is_written_through_a_link(pair: Pair, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("mine")
    pair.target.mkdir()
    (pair.target / "d").symlink_to(outside)
    write(pair.source, {"d/a": "theirs"})
    pair.go(strict=False)
    assert (outside / "a").read_text() == "mine"
    assert (pair.target / "d/a").read_text() == "theirs"


@pytest.mark.parametrize("harm", ["content", "mode", "missing", "extra"])
def test_a_copy_changed_by_hand_is_mended(pair: Pair, monkeypatch: pytest.MonkeyPatch, harm: str) -> None:
    rested(monkeypatch)
    write(pair.source, {"a": "1", "b": "2"})
    pair.settle()
    pair.go()
    copy = pair.target / "a"
    if harm == "content":
        copy.write_text("x")
        os.utime(copy, ns=(OLD_NS, OLD_NS))
    elif harm == "mode":
        copy.chmod(0o600)
    elif harm == "missing":
        copy.unlink()
    else:
        write(pair.target, {"more/x": ""})
    pair.go()
    assert content(pair.target) == content(pair.source)


def test_builds_in_a_copy_that_is_not_strict_stay(pair: Pair) -> None:
    write(pair.source, {"pkg/a.py": "", "pkg/b.py": ""})
    pair.go(strict=False)
    write(pair.target, {"pkg/b.so": "built", ".venv/x": ""})
    (pair.source / "pkg/b.py").unlink()
    assert pair.go(strict=False).removed == 1
    assert set(content(pair.target)) == {"pkg/a.py", "pkg/b.so", ".venv/x"}


@pytest.mark.parametrize("size", [0, 1, copying.SMALL, copying.SMALL + 1, 3 * copying.BLOCK + 5])
def test_every_size_is_copied_and_hashed_whole(tmp_path: Path, size: int) -> None:
    (tmp_path / "a").write_bytes(os.urandom(1024) * (size // 1024) + b"x" * (size % 1024))
    sha256, _, made = copying.copy(str(tmp_path / "a"), str(tmp_path / "b"), 0o640)
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()
    assert sha256 == copying.sha256_of(str(tmp_path / "b"))
    assert (made.size, made.mode) == (size, 0o640)


def test_a_file_that_grows_while_it_is_copied_is_no_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "a"
    source.write_text("1")

    def growing(incoming: int, outgoing: int) -> tuple[str, int]:
        data = os.read(incoming, 10)
        source.write_text("12")
        return "", len(data)

    monkeypatch.setattr(copying, "_small", growing)
    with pytest.raises(Transient, match="changed while"):
        copying.copy(str(source), str(tmp_path / "b"), 0o644)


def test_of_an_index_of_another_boot_only_the_names_are_believed_and_a_broken_one_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, file = Index(), tmp_path / "i.json"
    index.hashes["a"] = (1, -2, 3, (1 << 64) - 1, "ab" * 32)
    index.others = ["b\nc", "\udcff"]
    index.save(file)
    assert (Index.load(file).hashes, Index.load(file).others) == (index.hashes, index.others)
    good = file.read_bytes()
    monkeypatch.setattr("flodl_publish.index._boot", lambda: "another")
    assert Index.load(file).hashes.keys() == {"a"}
    assert Index.load(file).get("a", FileStat(1, 2, 3, 4, 0o644)) is None
    for bad in (b"", b"{", b"[]", b'{"v": 1}', *(good[:end] for end in range(len(good)))):
        file.write_bytes(bad)
        assert Index.load(file).hashes == {}
    assert Index.load(tmp_path / "no").hashes == {}
