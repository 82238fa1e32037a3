"""What signals to the launcher mean, by when they come."""

from __future__ import annotations

import pytest

from flodl_window.asked_to_end import TOGETHER, AskedToEnd, Wish


@pytest.mark.parametrize(("over", "first", "later"), [(False, Wish.END, Wish.LEAVE), (True, Wish.LEAVE, Wish.LEAVE)])
def test_what_comes_together_is_one_and_what_comes_later_leaves(over: bool, first: Wish, later: Wish) -> None:
    asked = AskedToEnd()
    assert asked.heard(0.0, over=over) is first
    assert asked.heard(0.0, over=over) is Wish.SAME
    assert asked.heard(TOGETHER - 0.01, over=over) is Wish.SAME
    assert asked.heard(TOGETHER, over=over) is later
    assert asked.heard(99.0, over=True) is later
