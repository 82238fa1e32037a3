"""One value as YAML text. Everything a user can influence is double-quoted, so that it is read back as it was."""

from __future__ import annotations

import re

_PLAIN = re.compile(r"[A-Za-z/~_][A-Za-z0-9/~_.@+-]*\Z")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "~"}


def quoted(text: str) -> str:
    """`text` in double quotes; what is not printable as the escape that YAML has for it."""
    return '"' + "".join(_ESCAPES.get(ch) or (ch if ch.isprintable() else _escape(ch)) for ch in text) + '"'


def scalar(text: str) -> str:
    """`text` bare where YAML cannot take it for anything else, else quoted."""
    return text if _PLAIN.match(text) and text.lower() not in _WORDS else quoted(text)


def block(text: str, indent: int) -> str:
    """`text` as the lines of a literal block (behind `|`), each `indent` deep."""
    return "".join(f"{' ' * indent}{line}\n" if line else "\n" for line in text.rstrip("\n").split("\n"))


_ESCAPES = {'"': '\\"', "\\": "\\\\"}


def _escape(ch: str) -> str:
    code = ord(ch)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}" if code < 65536 else f"\\U{code:08x}"
