"""The one line of JSON by which a process learns on stdin what it is for. stdin then stays open: its end is the order
to end.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from flodl_wire.faults import Refused, usage

T = TypeVar("T")

_LIMIT = 16 << 20  # bytes: a roster of thousands of hosts


def read_line(number: int, kind: type[T], what: str) -> T:
    """The first line of descriptor `number` as `kind`; whatever comes behind it means nothing. Raises Refused."""
    if os.isatty(number):
        raise usage(f"cannot read {what} from a terminal", "it is one line of JSON that another tool writes")
    line = bytearray()
    while b"\n" not in line and len(line) < _LIMIT:
        data = os.read(number, 1 << 16)
        if not data:
            break
        line += data
    if not line:
        raise Refused("no-spec", f"cannot read {what}", "stdin was closed before it came")
    try:
        return msgspec.json.decode(line.partition(b"\n")[0], type=kind)
    except msgspec.MsgspecError as err:
        raise Refused("bad-spec", f"cannot read {what} on stdin", str(err)) from None
