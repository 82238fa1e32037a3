"""The eight bytes in front of every sealed channel (docs/protocol.md, W-1 to W-6), and the eight that turn one away.

A door reads them before it knows anything else: they say that this is flodl, which protocol, which channel, and how
the handshake behind them is keyed. They are bound into that handshake as its prologue, so nobody on the road can
change them.
"""

from __future__ import annotations

from typing import NamedTuple

from flodl_wire.faults import Fault, Refused, Transient

MAGIC = bytes.fromhex("f10d1fd1")  # the first byte is no ASCII letter: one byte tells a channel from an HTTP request
VERSION = 1
LENGTH = 8

JOIN = 1
RELAY = 2
STORE = 3
KINDS = {JOIN: "join", RELAY: "relay", STORE: "store"}

_KEYED = 1
_CHACHA = 2


class Preface(NamedTuple):
    """`keyed`: a salt or token keys the handshake (else the zero key of an open door). `chacha`: ChaCha20-Poly1305 for
    AES-GCM.
    """

    kind: int
    keyed: bool = True
    chacha: bool = False

    def encode(self) -> bytes:
        flags = (_KEYED if self.keyed else 0) | (_CHACHA if self.chacha else 0)
        return MAGIC + VERSION.to_bytes(2, "big") + bytes((self.kind, flags))


def is_start(data: bytes | bytearray | memoryview) -> bool:
    """True while `data` (one byte or more) may still become a preface; a stranger goes at its first wrong byte."""
    return bytes(data[:4]) == MAGIC[: min(4, len(data))]


def parse(data: bytes | bytearray | memoryview) -> Preface:
    """The preface in the first eight bytes of `data`. Raises Refused: other magic, version, kind, or unknown flags."""
    head = bytes(data[:LENGTH])
    if len(head) < LENGTH or head[:4] != MAGIC:
        raise Refused(
            "not-flodl",
            "cannot take this connection",
            f"it does not start like a flodl channel ({head.hex(' ')})",
            "a port scanner or another program dials this port; nothing to do unless it was meant to be flodl",
        )
    version = int.from_bytes(head[4:6], "big")
    if version != VERSION:
        raise other_version(version)
    kind, flags = head[6], head[7]
    if kind not in KINDS:
        raise Refused(
            "other-kind", "cannot take this connection", f"it asks for channel kind {kind}; there are {_kinds()}"
        )
    if flags & ~(_KEYED | _CHACHA):
        raise Refused("other-flags", "cannot take this connection", f"its preface has unknown flags (0x{flags:02x})")
    return Preface(kind, bool(flags & _KEYED), bool(flags & _CHACHA))


def other_version(theirs: int) -> Refused:
    """Both versions, who is behind, and the command that mends it."""
    behind = "this side" if theirs > VERSION else "the other side"
    return Refused(
        "other-version",
        "cannot open a channel",
        f"the other side speaks flodl protocol {theirs}, this side {VERSION}",
        f"bring every host to the same release; {behind} is older: "
        "pip install --upgrade flodl-cli flodl-window flodl-agent flodl-planes",
    )


def _kinds() -> str:
    return ", ".join(f"{number} {name}" for number, name in KINDS.items())


# Why an acceptor turned a channel away: one byte, the same in every version (W-6).
REASON_VERSION = 1
REASON_KEY = 2
REASON_UNKEYED = 3
REASON_KIND = 4
REASON_BUSY = 5


def encode_refusal(reason: int) -> bytes:
    """What an acceptor sends instead of a handshake before it closes: the preface of kind 0, with its own version and
    a reason.
    """
    return MAGIC + VERSION.to_bytes(2, "big") + bytes((0, reason))


def is_refusal(data: bytes | bytearray | memoryview) -> bool:
    """True when `data`, all that came before the other side closed, is a refusal. (A handshake message is 48 bytes.)"""
    return len(data) == LENGTH and bytes(data[:4]) == MAGIC and data[6] == 0


def refusal_fault(data: bytes | bytearray | memoryview, channel: str) -> Fault:
    """The fault that the refusal in `data` stands for, as its receiver tells it; `channel` is the channel's name."""
    what = f"cannot open the {channel} channel"
    version, reason = int.from_bytes(data[4:6], "big"), data[7]
    if reason == REASON_VERSION:
        return other_version(version)
    if reason == REASON_KEY:
        return wrong_key(what)
    if reason == REASON_UNKEYED:
        return Refused(
            "no-key",
            what,
            "the other side wants a salt or token and this side has none",
            "pass the run's token: --token <32 hex>",
        )
    if reason == REASON_KIND:
        return Refused("other-kind", what, "the other side does not serve it (now)")
    if reason == REASON_BUSY:
        return Transient("busy", what, "too many connections wait at the other side", "try again in a moment")
    return Refused("refused", what, f"the other side turned it away (reason {reason})")


def wrong_key(what: str) -> Refused:
    """The acceptor could not open the dialler's first message: the one sentence for it, on both sides."""
    return Refused(
        "wrong-key",
        what,
        "the other side holds another salt or token",
        "check that both belong to the same run: its token, its address and its port",
    )


def stranger(what: str, answer: bytes) -> Refused:
    """What a dialler says when it got `answer` where a handshake message belongs. Many programs greet in plain words:
    the first line of those is shown.
    """
    line = answer.splitlines()[0] if answer else b""
    greeting = f" (it says {line.decode('ascii')!r})" if line.isascii() and line.decode("ascii").isprintable() else ""
    return Refused(
        "not-flodl",
        what,
        f"something answers there that is not flodl{greeting}, or the road changes what it carries",
        "check that address and port are those of a flodl controller",
    )
