"""What processes print, as lines: cut, decoded, and the last ones remembered. Pure.

A line ends at ``\\n``, ``\\r\\n`` or a lone ``\\r`` (progress bars); a last line without an end gets one; bytes that
are no UTF-8 become U+FFFD; a line longer than `MAX_LINE` arrives in pieces, so that no program can make us hold its
output for ever.
"""

from __future__ import annotations

from collections import deque

MAX_LINE = 64 * 1024  # bytes
TAIL = 50  # lines that travel with an exit
TAIL_LINE = 4096  # characters of each of them


class LineSplitter:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._partial = bytearray()
        self._after_return: bytes | None = None  # a line just ended by \r: a \n that follows is part of it

    def feed(self, data: bytes) -> list[str]:
        lines: list[str] = []
        if self._after_return is not None and data:
            if data.startswith(b"\n"):
                data = data[1:]
                if not self._after_return:  # a blank line; a lone \r with nothing before it would have been none
                    lines.append("")
            self._after_return = None
        *ended, rest = data.split(b"\n")
        for index, piece in enumerate(ended):
            if index == 0 and self._partial:
                piece = bytes(self._partial) + piece
                self._partial.clear()
            lines += _physical_lines(piece.removesuffix(b"\r"))
        self._partial += rest
        if b"\r" in rest:
            *bars, last = self._partial.split(b"\r")
            lines += [line for bar in bars if bar for line in _pieces(bytes(bar))]
            self._partial = bytearray(last)
            if not last:
                self._after_return = bytes(bars[-1])
        while len(self._partial) > MAX_LINE:
            cut = _character_boundary(self._partial, MAX_LINE)
            lines.append(_text(self._partial[:cut]))
            del self._partial[:cut]
        return lines

    def finish(self) -> list[str]:
        """The stream has ended: what is left, as a line."""
        rest, self._partial = bytes(self._partial), bytearray()
        return [_text(rest)] if rest else []


def _physical_lines(text: bytes) -> list[str]:
    """One ``\\n``-ended line; its progress bars are lines of their own, the last one even when it is blank."""
    *bars, last = text.split(b"\r")
    return [piece for bar in bars if bar for piece in _pieces(bar)] + _pieces(last)


def _pieces(line: bytes) -> list[str]:
    pieces = []
    while len(line) > MAX_LINE:
        cut = _character_boundary(line, MAX_LINE)
        pieces.append(_text(line[:cut]))
        line = line[cut:]
    return [*pieces, _text(line)]


def _character_boundary(line: bytes | bytearray, limit: int) -> int:
    """The last place at or before `limit` that does not cut a UTF-8 character in two."""
    cut = limit
    while limit - cut < 3 and line[cut] & 0xC0 == 0x80:
        cut -= 1
    return cut if line[cut] & 0xC0 != 0x80 else limit


def _text(raw: bytes | bytearray) -> str:
    return bytes(raw).decode("utf-8", "replace")


class Tail:
    """The last `TAIL` lines of a process, both streams together."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=TAIL)

    def add(self, lines: list[str]) -> None:
        self._lines.extend(line[:TAIL_LINE] for line in lines[-TAIL:])

    def lines(self) -> list[str]:
        return list(self._lines)
