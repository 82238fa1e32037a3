"""Where a run comes from: `file://`, `rsync://` and `git+…` specs, parsed whole before anything is touched. Pure.

The scheme names the tool, not a wire protocol. Paths are meant literally: no percent signs are decoded.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from typing import Literal

from flodl_wire.faults import Refused

GIT_SCHEMES = ("git+https://", "git+ssh://", "git+file://")
FORMS = "file:///abs/path, rsync://[user@]host[:port]:/abs/path, git+https://host/repo#ref (or git+ssh://, git+file://)"
_REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./@+-]*\Z")
_SECRET = re.compile(r"(?<=://)[^/@]*:[^/@]*@")


@dataclass(frozen=True)
class Source:
    """`path` is absolute and normal, for `file` and `rsync`; `url` and `ref` are git's."""

    kind: Literal["file", "rsync", "git"]
    text: str
    path: str = ""
    host: str = ""  # without brackets
    user: str = ""
    port: int | None = None
    url: str = ""
    ref: str = ""

    @property
    def origin(self) -> str:
        """The spec as it may be shown and written down: without a password."""
        return without_secrets(self.text)


def without_secrets(text: str) -> str:
    """`text` with no password in its URLs."""
    return _SECRET.sub("", text)


def parse(text: str) -> Source:
    """Raises Refused (code bad-source) that says what is wrong and shows the forms."""

    def refuse(why: str, fix: str = "") -> Refused:
        return Refused("bad-source", f"cannot use the source {without_secrets(text)!r}", why, fix or f"write {FORMS}")

    if not text.strip() or any(ord(char) < 32 or ord(char) == 127 for char in text):
        raise refuse("it is blank, or holds a control character")
    if text.startswith("file://"):
        path = text[len("file://") :]
        if not path.startswith("/"):
            raise refuse("its path is not absolute (file:// names a folder of this very box)")
        return Source("file", text, path=posixpath.normpath("/" + path.lstrip("/")))
    if text.startswith("rsync://"):
        return _rsync(text, refuse)
    if text.startswith("git+"):
        return _git(text, refuse)
    if "://" in text:
        raise refuse(f"there is no scheme {text.partition('://')[0]}://")
    if text.startswith(("/", "~")):
        raise refuse("it has no scheme", f"write file://{text if text[0] == '/' else '/home/…'}")
    raise refuse("it has no scheme; a bare path or remote could mean several things")


def _rsync(text: str, refuse: object) -> Source:
    assert callable(refuse)
    from flodl_wire import remote_path  # most sources are folders of this box

    found = remote_path.parse(text[len("rsync://") :])
    if isinstance(found, str):
        raise refuse(found, f"write rsync://{remote_path.FORM}")
    return Source("rsync", text, path=found.path, host=found.host, user=found.user, port=found.port)


def _git(text: str, refuse: object) -> Source:
    assert callable(refuse)
    if not text.startswith(GIT_SCHEMES):
        raise refuse("git sources are git+https://, git+ssh:// or git+file://")
    url, mark, ref = text[len("git+") :].partition("#")
    if not mark or not ref:
        raise refuse(
            "it names no ref, and a default branch floats",
            f"pin it: {without_secrets(text).rstrip('#')}#v1.0 (or a commit)",
        )
    if not _REF.match(ref) or ".." in ref or ref.endswith((".lock", "/", ".")):
        raise refuse(f"{ref!r} is no name of a branch, tag or commit")
    rest = url.partition("://")[2]
    if url.startswith("file://") and not rest.startswith("/"):
        raise refuse("its path is not absolute")
    if rest.startswith("-") or not rest.strip("/"):
        raise refuse("it names no repository")
    return Source("git", text, url=url, ref=ref)
