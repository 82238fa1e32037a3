"""The merge, as a law rather than by example."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from flodl_cli.node import Node, leaves, merge

values = st.recursive(
    st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["x", "y"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
layers = st.dictionaries(st.sampled_from("abc"), values, max_size=3)


def node(value: Any, file: str) -> Node:
    if isinstance(value, dict):
        return Node({key: node(child, file) for key, child in value.items()}, file)
    if isinstance(value, list):
        return Node([node(child, file) for child in value], file)
    return Node(value, file)


def expected(lower: Any, upper: Any) -> Any:
    """The rule in five lines of plain Python."""
    if not isinstance(upper, dict):
        return upper
    result = dict(lower) if isinstance(lower, dict) else {}
    for key, value in upper.items():
        result.pop(key, None) if value is None else result.update({key: expected(result.get(key), value)})
    return result


@given(layers, layers)
def test_blocks_merge_scalars_and_lists_replace_and_null_deletes(lower: dict[str, Any], upper: dict[str, Any]) -> None:
    assert merge(node(lower, "low"), node(upper, "up")).plain() == expected(lower, upper)


@given(layers, layers)
def test_neither_layer_is_changed_and_every_leaf_knows_its_file(lower: dict[str, Any], upper: dict[str, Any]) -> None:
    low, up = node(lower, "low"), node(upper, "up")
    merged = merge(low, up)
    assert (low.plain(), up.plain()) == (lower, upper)
    for path, leaf in leaves(merged):
        source: Any = {"low": lower, "up": upper}[leaf.file]
        for step in path:
            source = source[int(step[1:-1])] if isinstance(source, list) else source[step]
        assert leaf.value == {} or leaf.plain() == source


@given(layers)
def test_an_empty_layer_changes_nothing(lower: dict[str, Any]) -> None:
    assert merge(node(lower, "low"), node({}, "up")).plain() == lower
