"""Links and help texts of the pages."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import pages
from tools.rules.finding import Tree


def tree(root: Path, **files: str) -> Tree:
    for name, text in files.items():
        (root / f"{name}.md").write_text(text)
    return Tree(root)


def test_a_link_to_a_missing_file_or_heading_is_found_with_its_line(tmp_path: Path) -> None:
    here = tree(tmp_path, a="\n[x](b.md) [y](c.md)\n[z](b.md#two-words) [w](b.md#three)\n", b="# Two words\n")
    assert [(found.file, found.line) for found in pages.broken_links(here)] == [("a.md", 2), ("a.md", 3)]


def test_links_inside_code_and_to_the_web_are_not_looked_at(tmp_path: Path) -> None:
    assert list(pages.broken_links(tree(tmp_path, a="```\n[x](nowhere.md)\n```\n[y](https://example.org/z)\n"))) == []


def test_a_stale_help_text_is_found_and_rewritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "printed", lambda command: f"usage: {command}\n")
    text = "intro\n<!-- help: fdl init -->\nold\n<!-- end help -->\nend\n"
    assert [found.line for found in pages.stale_help(tree(tmp_path, a=text))] == [3]
    assert list(pages.stale_help(Tree(tmp_path), write=True)) == []
    assert (
        tmp_path / "a.md"
    ).read_text() == "intro\n<!-- help: fdl init -->\nusage: fdl init\n<!-- end help -->\nend\n"
