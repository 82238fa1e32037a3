"""Which links may travel."""

from __future__ import annotations

import pytest

from flodl_publish.tree import leaves

LINKS = {"here": ".", "sub/up": "..", "far": "/etc", "chain": "far", "deep": "a/b", "loop": "loop", "l2": "here/here"}


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("x", "a/b"),
        ("sub/x", "../a"),
        ("x", "nowhere"),
        ("x", "./sub/../a"),
        ("x", "sub/up/a"),
        ("x", "loop"),
        ("x", "deep/../../a"),
    ],
)
def test_a_link_that_stays_inside_travels(path: str, target: str) -> None:
    assert leaves(path, target, LINKS.get) == ""


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("x", "/etc/passwd"),
        ("x", ".."),
        ("x", "../source/a"),  # comes back in only while the folder has this name
        ("sub/x", "../../a"),
        ("x", "here/.."),
        ("x", "l2/.."),
        ("x", "sub/up/.."),
        ("x", "chain/passwd"),
    ],
)
def test_a_link_that_leaves_does_not(path: str, target: str) -> None:
    assert leaves(path, target, LINKS.get)
