"""A path's answer: the page and its files, the documents, the stream."""

from __future__ import annotations

import functools
import hashlib
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass, field

from flodl_window.live.requests import ASSETS

# Nothing from anywhere else, no script or style in the document itself, nobody's frame.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "": "text/plain; charset=utf-8",
}
EVENTS = "text/event-stream; charset=utf-8"


@dataclass
class Answer:
    """`stream`: the connection stays open and gets the feed behind the head."""

    status: int
    body: bytes = b""
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: bool = False


@dataclass(frozen=True)
class Asset:
    body: bytes
    type: str
    tag: str


@functools.cache
def assets() -> dict[str, Asset]:
    """The page's files by their path below /page/, read once. (A name from a request is only ever looked up here.)"""
    root = importlib.resources.files("flodl_window.live") / "page"
    found: dict[str, Asset] = {}
    waiting = [("", root)]
    while waiting:
        prefix, folder = waiting.pop()
        for entry in folder.iterdir():
            name = prefix + entry.name
            if entry.is_dir():
                waiting.append((f"{name}/", entry))
            else:
                body = entry.read_bytes()
                kind = TYPES.get(f".{entry.name.rpartition('.')[2]}" if "." in entry.name else "")
                if kind is not None:
                    found[name] = Asset(body, kind, f'"{hashlib.sha256(body).hexdigest()[:20]}"')
    return found


def asset(path: str, headers: Mapping[str, str]) -> Answer | None:
    """A file of the page, or that the browser has it already; None when there is none of that name."""
    found = assets().get(path.removeprefix(ASSETS))
    if found is None:
        return None
    kept = {"ETag": found.tag, "Cache-Control": "no-cache"}
    if found.tag in headers.get("if-none-match", ""):
        return Answer(304, type=found.type, headers=kept)
    return Answer(200, found.body, found.type, kept)


def page(headers: Mapping[str, str]) -> Answer:
    answer = asset(f"{ASSETS}index.html", headers)
    assert answer is not None, "the package is whole"
    return answer
