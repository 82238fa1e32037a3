"""What may be a host's name, wherever one comes in: a config, a hello, a flag. Names end up on ssh's command line, in
log file names and on terminals, so they are held to what is safe in all three. No third-party import.
"""

from __future__ import annotations

MAX_NAME = 253  # the longest name DNS can carry


def flaw(name: str) -> str:
    """Why `name` cannot be a host's name or address, as the second half of a refusal; "" when it can."""
    if not name.strip():
        return "it is blank"
    if name.startswith("-"):
        return f"{name!r} starts with '-', which ssh would read as an option"
    if any(ch.isspace() or not ch.isprintable() for ch in name):
        return f"{name!r} holds a space or an unprintable character"
    if "/" in name or name in (".", ".."):
        return f"{name!r} would be a path"
    if len(name) > MAX_NAME:
        return f"it has {len(name)} characters; {MAX_NAME} is the most a host's name can have"
    return ""
