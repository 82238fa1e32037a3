"""Eight bytes that say what a connection is (W-1 to W-6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import preface
from flodl_wire.faults import Fault, Refused, Transient
from flodl_wire.preface import Preface


@given(st.sampled_from(sorted(preface.KINDS)), st.booleans(), st.booleans())
def test_a_preface_reads_back(kind: int, keyed: bool, chacha: bool) -> None:
    head = Preface(kind, keyed, chacha)
    assert len(head.encode()) == preface.LENGTH
    assert preface.parse(head.encode() + b"what follows") == head


@given(st.binary(max_size=64))
def test_any_bytes_are_a_preface_or_a_refusal(data: bytes) -> None:
    try:
        preface.parse(data)
    except Refused:
        return
    assert preface.is_start(data)


@pytest.mark.parametrize("data", [b"GET / HT", b"SSH-2.0-", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"", b"\xf1\x0d\x1f"])
def test_what_is_no_flodl_is_refused_with_its_first_bytes(data: bytes) -> None:
    with pytest.raises(Refused) as caught:
        preface.parse(data)
    assert caught.value.code == "not-flodl"
    assert caught.value.why == f"it does not start like a flodl channel ({data.hex(' ')})"


@pytest.mark.parametrize(
    ("theirs", "older"), [(2, "this side is older"), (0, "the other side is older"), (65535, "this side is older")]
)
def test_another_version_is_refused_naming_both_and_the_command(theirs: int, older: str) -> None:
    with pytest.raises(Refused) as caught:
        preface.parse(preface.MAGIC + theirs.to_bytes(2, "big") + b"\x01\x01")
    assert str(caught.value) == (
        f"cannot open a channel: the other side speaks flodl protocol {theirs}, this side {preface.VERSION}"
    )
    assert older in caught.value.fix and "pip install --upgrade flodl-" in caught.value.fix


def test_unknown_kinds_and_flags_are_refused() -> None:
    with pytest.raises(Refused, match="channel kind 9; there are 1 join, 2 relay, 3 store"):
        preface.parse(preface.MAGIC + b"\x00\x01\x09\x01")
    with pytest.raises(Refused, match="unknown flags \\(0x81\\)"):
        preface.parse(preface.MAGIC + b"\x00\x01\x01\x81")


def test_a_stranger_is_told_apart_at_its_first_byte() -> None:
    assert not preface.is_start(b"G")
    assert not preface.is_start(b"\xf1\x0d\x1f\xd2")
    for length in range(1, 9):
        assert preface.is_start(Preface(preface.JOIN).encode()[:length])
    assert not preface.MAGIC[:1].isalpha()


@pytest.mark.parametrize(
    ("reason", "kind", "sentence"),
    [
        (preface.REASON_KEY, Refused, "cannot open the join channel: the other side holds another salt or token"),
        (
            preface.REASON_UNKEYED,
            Refused,
            "cannot open the join channel: the other side wants a salt or token and this side has none",
        ),
        (preface.REASON_KIND, Refused, "cannot open the join channel: the other side does not serve it (now)"),
        (preface.REASON_BUSY, Transient, "cannot open the join channel: too many connections wait at the other side"),
        (77, Refused, "cannot open the join channel: the other side turned it away (reason 77)"),
    ],
)
def test_a_refusal_says_its_reason(reason: int, kind: type[Fault], sentence: str) -> None:
    data = preface.encode_refusal(reason)
    assert preface.is_refusal(data)
    fault = preface.refusal_fault(data, "join")
    assert (type(fault), str(fault)) == (kind, sentence)


def test_a_refusal_for_the_version_carries_the_version() -> None:
    data = bytearray(preface.encode_refusal(preface.REASON_VERSION))
    data[5] = 9
    assert "speaks flodl protocol 9" in str(preface.refusal_fault(data, "join"))


def test_a_preface_is_no_refusal_nor_is_a_handshake_message() -> None:
    assert not preface.is_refusal(Preface(preface.JOIN).encode())
    assert not preface.is_refusal(preface.encode_refusal(1) + bytes(40))
    with pytest.raises(Refused, match="channel kind 0"):
        preface.parse(preface.encode_refusal(1))
