"""``host[:port]`` as people type it, IPv6 included. No third-party import: `fdl status` loads this."""

from __future__ import annotations

from flodl_wire import hosts
from flodl_wire.faults import Refused

DEFAULT_PORT = 1337


class Address:
    """A host (IPv6 without brackets) and a port. A plain class: `typing` and `dataclasses` cost the hot commands more
    than all else here.
    """

    __slots__ = ("host", "port")

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and (self.host, self.port) == (other.host, other.port)

    def __hash__(self) -> int:
        return hash((self.host, self.port))

    def __str__(self) -> str:
        """As it would be typed: IPv6 in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse(text: str, where: str, default_port: int = DEFAULT_PORT) -> Address:
    """The address in `text`: ``node-a``, ``10.0.0.1:1337``, ``::1``, ``[fe80::1%eth0]:1337``. Nothing is looked up.

    `where` is the flag or key it came from. Raises Refused.
    """

    def refuse(why: str) -> Refused:
        return Refused(
            "bad-address", f"cannot read {where}: {text!r}", why, "write host:port, e.g. 10.0.0.1:1337 or [::1]:1337"
        )

    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket:
            raise refuse("the bracket is not closed")
        if rest and not rest.startswith(":"):
            raise refuse(f"{rest!r} follows the bracket")
        if ":" not in host:
            raise refuse("brackets are for IPv6 addresses")
        colon, port_text = rest[:1], rest[1:]
    elif text.count(":") > 1:  # a bare IPv6 address: no port can follow
        host, colon, port_text = text, "", ""
    else:
        host, colon, port_text = text.partition(":")
    if "@" in host:
        raise refuse("it names a user, and no login happens there: users go with ssh (--ssh user@host)")
    flaw = hosts.flaw(host)
    if flaw:
        raise refuse(flaw)
    if not colon:
        return Address(host, default_port)
    if not (port_text.isascii() and port_text.isdigit()):
        raise refuse("no port follows the colon" if not port_text else f"{port_text!r} is no port")
    if not 1 <= int(port_text[:6]) <= 65535 or len(port_text) > 5:
        raise refuse(f"{port_text} is no TCP port (1 to 65535)")
    return Address(host, int(port_text))
