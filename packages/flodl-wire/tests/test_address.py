"""host[:port] as people type it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_wire import address
from flodl_wire.address import Address
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("node-a", "node-a", 1337),
        ("10.0.0.1:1338", "10.0.0.1", 1338),
        ("[::1]:1337", "::1", 1337),
        ("[::1]", "::1", 1337),
        ("::1", "::1", 1337),
        ("[fe80::1%eth0]:1337", "fe80::1%eth0", 1337),
        ("h:00080", "h", 80),
    ],
)
def test_valid_forms_are_split_right(text: str, host: str, port: int) -> None:
    assert address.parse(text, "--addr") == Address(host, port)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("h:99999", "99999 is no TCP port (1 to 65535)"),
        ("h:0", "0 is no TCP port (1 to 65535)"),
        ("h:" + "1" * 5000, "1" * 5000 + " is no TCP port (1 to 65535)"),
        ("h:", "no port follows the colon"),
        ("h:x", "'x' is no port"),
        ("h:-1", "'-1' is no port"),
        ("h:１", "'１' is no port"),
        ("[::1", "the bracket is not closed"),
        ("[::1]1337", "'1337' follows the bracket"),
        ("[node]:1", "brackets are for IPv6 addresses"),
        ("me@h:1", "it names a user, and no login happens there: users go with ssh (--ssh user@host)"),
        ("", "it is blank"),
        (":1337", "it is blank"),
        ("-x:1", "'-x' starts with '-', which ssh would read as an option"),
    ],
)
def test_the_rest_is_refused_with_its_reason(text: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        address.parse(text, "--addr")
    assert str(caught.value) == f"cannot read --addr: {text!r}: {why}"
    assert caught.value.fix == "write host:port, e.g. 10.0.0.1:1337 or [::1]:1337"


@given(st.text())
def test_whatever_is_typed_is_an_address_that_reads_back_or_a_refusal(text: str) -> None:
    try:
        found = address.parse(text, "x")
    except Refused:
        return
    assert address.parse(str(found), "x") == found
