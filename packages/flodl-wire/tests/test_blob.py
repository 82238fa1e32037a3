"""Hex JSON, the form in which documents pass through environments and command lines."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import blob
from flodl_wire.faults import Broken, Refused
from flodl_wire.specs import AgentSpec, Command

VALID = st.text(st.characters(exclude_categories=["Cs"]))


@given(st.lists(VALID), st.dictionaries(VALID, VALID))
def test_argv_and_environment_arrive_byte_for_byte(argv: list[str], env: dict[str, str]) -> None:
    command = Command(argv, env)
    text = blob.encode(command)
    assert re.fullmatch("([0-9a-f]{2})*", text)
    assert blob.decode(text, Command, "x") == command


def test_the_three_fields_of_an_agent_spec_are_enough() -> None:
    """The published minimum: any program can start an agent with these."""
    text = b'{"host": "node-a", "controller_host": "10.0.0.1", "controller_port": 1337}'.hex()
    spec = blob.decode(text, AgentSpec, "x")
    assert spec == AgentSpec("node-a", "10.0.0.1", 1337)
    assert spec.salt_hex is None and spec.local_devices is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("zz", "non-hexadecimal number found in fromhex() arg at position 0"),
        ("7b", "Input data was truncated"),
        ("ff" * 4, "JSON is malformed: invalid character (byte 0)"),
        (b"[]".hex(), "Expected `object`, got `array`"),
        (b'{"argv": 1}'.hex(), "Expected `array`, got `int` - at `$.argv`"),
        ((b'{"x":' + b"[" * 9999).hex(), "maximum recursion depth exceeded"),
    ],
)
def test_a_blob_that_is_none_is_refused_by_the_name_of_its_variable(text: str, why: str) -> None:
    with pytest.raises(Broken, match=r"cannot read FLODL_X: ") as caught:
        blob.decode(text, Command, "FLODL_X")
    assert caught.value.why.startswith(why)
    assert caught.value.fix == "it is written by flodl's own tools: unset it, or bring every host to the same version"


@given(st.text())
def test_any_text_is_a_document_or_a_fault(text: str) -> None:
    try:
        blob.decode(text, Command, "x")
    except Broken:
        pass


def test_bytes_that_are_no_text_are_refused_in_words() -> None:
    with pytest.raises(Refused) as caught:
        blob.encode(Command(["python", "na\udcffme"]))
    assert str(caught.value) == "cannot pass this on: 'na\\udcffme' holds bytes that are not UTF-8"
