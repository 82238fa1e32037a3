"""What may be a host's name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import hosts


@pytest.mark.parametrize("name", ["node-a", "10.0.0.1", "fe80::1%eth0", "user@box", "gör-an", "a" * 253])
def test_names_and_addresses_pass(name: str) -> None:
    assert hosts.flaw(name) == ""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "it is blank"),
        (" \t", "it is blank"),
        ("-oProxyCommand=x", "'-oProxyCommand=x' starts with '-', which ssh would read as an option"),
        ("a b", "'a b' holds a space or an unprintable character"),
        ("a\x1b[2J", "'a\\x1b[2J' holds a space or an unprintable character"),
        ("../x", "'../x' would be a path"),
        ("..", "'..' would be a path"),
        ("a" * 254, "it has 254 characters; 253 is the most a host's name can have"),
    ],
)
def test_each_flaw_is_named(name: str, why: str) -> None:
    assert hosts.flaw(name) == why


@given(st.text())
def test_a_name_that_passes_is_safe_on_a_command_line_in_a_file_name_and_on_a_terminal(name: str) -> None:
    if not hosts.flaw(name):
        assert name.isprintable() and not name.startswith("-") and "/" not in name and name not in (".", "..", "")
