"""A path's answer: the page, the documents, the stream."""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from flodl_window.live import joined

MODULES = ("text.js", "store.js", "charts.js", "timeline.js", "words.js", "live.js")
HTML = "text/html; charset=utf-8"
EVENTS = "text/event-stream; charset=utf-8"


@dataclass
class Answer:
    """`stream`: the connection stays open and gets the feed behind the head."""

    status: int
    body: bytes = b""
    type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    stream: bool = False


@functools.cache
def _document() -> tuple[bytes, dict[str, str]]:
    """The page with all that it needs in it, and what is said of it; made once."""
    parts = {
        "mark": joined.mark(),
        "style": joined.style(),
        "script": joined.script(*(joined.PAGE / name for name in MODULES)),
    }
    frame = (joined.PAGE / "index.html").read_text(encoding="utf-8")
    body = re.sub(r"\{(mark|style|script)\}", lambda found: parts[found[1]], frame).encode()
    # Nothing from anywhere else, no script or style but its own, nobody's frame.
    policy = (
        f"default-src 'none'; script-src {joined.source(parts['script'])}; style-src {joined.source(parts['style'])}; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    tag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
    return body, {"Content-Security-Policy": policy, "ETag": tag, "Cache-Control": "no-cache"}


def page(headers: Mapping[str, str]) -> Answer:
    """The page, or that the browser has it already."""
    body, said = _document()
    if said["ETag"] in headers.get("if-none-match", ""):
        return Answer(304, type=HTML, headers=said)
    return Answer(200, body, HTML, said)
