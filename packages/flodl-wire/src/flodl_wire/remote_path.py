"""``[user@]host[:port]:/absolute/path``: a folder on another box, as rsync:// and sshfs:// specs write it. Pure."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from flodl_wire import hosts

FORM = "[user@]host[:port]:/absolute/path"
_FORM = re.compile(r"(?:(?P<user>[^@/:]+)@)?(?P<host>\[[^\]]+\]|[^:/@\[\]]+)(?::(?P<port>\d{1,9}))?:(?P<path>/.*)\Z")


@dataclass(frozen=True)
class RemotePath:
    """`host` without brackets; `path` absolute and normal."""

    host: str
    path: str
    user: str = ""
    port: int | None = None

    @property
    def login(self) -> str:
        """[user@]host as rsync and sshfs take it: an IPv6 address in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" if self.user else host

    def __str__(self) -> str:
        return f"{self.login}{'' if self.port is None else f':{self.port}'}:{self.path}"


def parse(text: str) -> RemotePath | str:
    """The place, or what is wrong with `text` (behind its scheme)."""
    if any(ord(char) < 32 or ord(char) == 127 for char in text):
        return "it holds a control character"
    found = _FORM.match(text)
    if found is None:
        return "it wants host, colon, absolute path"
    host, user = found["host"].strip("[]"), found["user"] or ""
    for name in (host, user):
        if name and (flaw := hosts.flaw(name)):
            return flaw
    port = int(found["port"]) if found["port"] else None
    if port is not None and not 1 <= port <= 65535:
        return f"{port} is no TCP port"
    return RemotePath(host, posixpath.normpath("/" + found["path"].lstrip("/")), user, port)
