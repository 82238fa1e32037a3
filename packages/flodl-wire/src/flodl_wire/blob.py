"""Hex JSON: a document that survives every shell, ssh and compose file between two processes (lowercase hex, no
separators).
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from flodl_wire.faults import Broken
from flodl_wire.messages import not_text

T = TypeVar("T")


def encode(document: object) -> str:
    """A msgspec struct (or plain JSON value) as lowercase hex of its UTF-8 JSON."""
    try:
        return msgspec.json.encode(document).hex()
    except UnicodeEncodeError as err:
        raise not_text("cannot pass this on", err) from None


def decode(text: str, kind: type[T], name: str) -> T:
    """The document in `text` as `kind`; `name` is the variable or option it came from, for the error.

    Raises Broken when it is not hex, not JSON, or not that shape.
    """
    try:
        return msgspec.json.decode(bytes.fromhex(text.strip()), type=kind)
    except (ValueError, msgspec.MsgspecError, RecursionError) as err:
        raise Broken(
            "bad-blob",
            f"cannot read {name}",
            str(err),
            "it is written by flodl's own tools: unset it, or bring every host to the same version",
        ) from None
