"""JSON messages in and out of frames (docs/protocol.md, W-30 to W-32).

A message is a msgspec struct with a tag: ``{"type": "hello", …}``. Unknown keys are ignored, so that a newer side may
add some; an unknown type is refused by its name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from flodl_wire.faults import Broken, Refused, printable
from flodl_wire.preface import VERSION

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class _Tag(msgspec.Struct):
    type: str = ""


_tag_decoder = msgspec.json.Decoder(_Tag)


def not_text(what: str, err: UnicodeEncodeError) -> Refused:
    """The fault for bytes that are no UTF-8 where text has to travel."""
    piece = err.object[max(0, err.start - 20) : err.end + 20]
    return Refused(
        "not-text", what, f"'{printable(piece)}' holds bytes that are not UTF-8", "rename it, or pass it in a file"
    )


@lru_cache(maxsize=64)
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def encode_message(message: msgspec.Struct) -> bytes:
    """The body of a message frame. Raises Refused for text that JSON cannot carry (undecodable bytes of a name)."""
    try:
        return _encoder.encode(message)
    except UnicodeEncodeError as err:
        raise not_text("cannot send a message", err) from None


def decode_message(body: bytes | bytearray | memoryview, kind: Any, where: str) -> Any:
    """The message in `body` as one of the union `kind` (e.g. JoinUp); `where` names the sender, e.g. "node-b's agent".

    Raises Broken: not JSON, a type that does not belong here (named), a field that is missing or wrong (with its path).
    """
    try:
        return _decoder(kind).decode(body)
    except (msgspec.MsgspecError, RecursionError) as err:
        why = str(err)
        try:
            tag = _tag_decoder.decode(body).type
            if "`$.type`" in why:
                why = f"its type is {tag!r}, which protocol {VERSION} does not have here"
            elif tag:
                why = f"{tag}: {why}"
        except (msgspec.MsgspecError, RecursionError):
            pass
        raise Broken(
            "bad-message", f"cannot read a message from {where}", why, "bring every host to the same release"
        ) from None
