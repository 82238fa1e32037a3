"""Messages: tolerant of what is new in them, strict about what they are (W-30 to W-32)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import hub_messages, join_messages, messages, plane_messages
from flodl_wire.faults import Broken, Refused
from flodl_wire.join_messages import Beat, Hello, JoinDown, JoinUp, Log

UNIONS = {
    "JoinUp": join_messages.JoinUp,
    "JoinDown": join_messages.JoinDown,
    "ToHub": hub_messages.ToHub,
    "FromHub": hub_messages.FromHub,
    "RankUp": plane_messages.RankUp,
    "RankDown": plane_messages.RankDown,
    "RelayUp": plane_messages.RelayUp,
    "RelayDown": plane_messages.RelayDown,
}


def test_a_message_carries_its_type_first() -> None:
    assert messages.encode_message(Beat()) == b'{"type":"beat"}'
    assert messages.encode_message(Log(["a"], rank=2)) == b'{"type":"log","lines":["a"],"rank":2}'


@pytest.mark.parametrize("kind", UNIONS.values(), ids=UNIONS)
def test_every_message_of_every_link_has_a_type_of_its_own(kind: Any) -> None:
    tags = [member.__struct_config__.tag for member in kind.__args__]
    assert all(isinstance(tag, str) for tag in tags) and len(set(tags)) == len(tags)
    with pytest.raises(Broken, match="its type is 'nonsense'"):
        messages.decode_message(b'{"type":"nonsense"}', kind, "node-b")


def test_unknown_keys_are_ignored_so_that_a_newer_side_may_add_some() -> None:
    body = b'{"type":"hello","host":"a","agent":"00","devices":[],"colour":"red","deep":[[{}]]}'
    assert messages.decode_message(body, JoinUp, "a") == Hello("a", "00", [])


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b'{"type":"accept","ranks":[]}', "its type is 'accept', which protocol 1 does not have here"),
        (b'{"type":"hello","host":7}', "hello: Expected `str`, got `int` - at `$.host`"),
        (b'{"type":"hello"}', "hello: Object missing required field `host`"),
        (b'{"host":"a"}', "Object missing required field `type`"),
        (b'{"type":5}', "Expected `str`"),
        (b"[]", "Expected `object`, got `array`"),
        (b"", "Input data was truncated"),
        (b"\xff", "JSON is malformed: invalid character (byte 0)"),
    ],
)
def test_what_is_wrong_is_said_with_the_message_and_the_field(body: bytes, why: str) -> None:
    with pytest.raises(Broken) as caught:
        messages.decode_message(body, JoinUp, "node-b's agent")
    assert caught.value.what == "cannot read a message from node-b's agent"
    assert caught.value.why.startswith(why)
    assert caught.value.fix == "bring every host to the same release"


@given(st.binary(max_size=200) | st.from_regex(rb'\{"type":"(hello|log|beat|x)".{0,40}\}', fullmatch=True))
def test_any_bytes_are_a_message_or_a_fault(body: bytes) -> None:
    try:
        messages.decode_message(body, JoinUp, "x")
    except Broken:
        pass


@pytest.mark.parametrize("body", [b'{"type":"beat","x":' + b"[" * 100_000, b"[" * 100_000])
def test_a_message_nested_without_end_is_a_fault(body: bytes) -> None:
    with pytest.raises(Broken):
        messages.decode_message(body, JoinDown, "x")


def test_bytes_that_are_no_text_are_refused_before_they_are_sent() -> None:
    with pytest.raises(Refused, match=r"cannot send a message: .* holds bytes that are not UTF-8"):
        messages.encode_message(Log(["\udcff"]))


@pytest.mark.parametrize("kind", UNIONS.values(), ids=UNIONS)
def test_every_message_has_a_docstring_or_speaks_for_itself_and_no_field_named_type(kind: Any) -> None:
    for member in kind.__args__:
        assert "type" not in member.__struct_fields__
        assert member.__doc__ or len(member.__struct_fields__) <= 3, member
        msgspec.json.schema(member)
