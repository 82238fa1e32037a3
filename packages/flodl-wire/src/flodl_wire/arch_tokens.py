"""Which compiled code runs on which card. Tokens, never substrings: "sm_10" is not in "sm_100"."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CUDA = re.compile(r"(sm|compute)_?(\d+)(\d)([af]?)\Z")
_DOTTED = re.compile(r"(\d+)\.(\d)(\+ptx)?\Z", re.IGNORECASE)


def tokens(text: str) -> list[str]:
    """A list as metadata files have it: "6.1;12.0", "sm61 sm_120", "gfx942,gfx90a"; dotted ones become sm_61."""
    found = []
    for word in re.split(r"[\s;,]+", text.strip()):
        dotted = _DOTTED.match(word)
        if dotted:
            found.append(f"sm_{dotted[1]}{dotted[2]}")
            if dotted[3]:
                found.append(f"compute_{dotted[1]}{dotted[2]}")
        elif word:
            found.append(word.lower())
    return found


def runs(arch: str, compiled: Iterable[str]) -> str:
    """How the card `arch` ("sm90", "gfx942") runs it: "native", "jit" (from PTX, compiled anew at first use), or "".

    CUDA: machine code runs within its major version, on the same minor or a later one; PTX on every later card. What
    ends in a (or f) runs on exactly that card (or its family).
    """
    card = _CUDA.match(arch)
    if card is None:
        return "native" if arch in {token.partition(":")[0] for token in compiled} else ""
    major, minor = int(card[2]), int(card[3])
    jit = False
    for token in compiled:
        code = _CUDA.match(token)
        if code is None:
            continue
        theirs = (int(code[2]), int(code[3]))
        if code[4] == "a":
            fits = theirs == (major, minor)
        else:
            fits = theirs[0] == major and theirs[1] <= minor
        if code[1] == "sm" and fits:
            return "native"
        if code[1] == "compute" and (theirs == (major, minor) if code[4] else theirs <= (major, minor)):
            jit = True
    return "jit" if jit else ""
