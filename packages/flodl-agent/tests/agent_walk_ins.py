"""`flodl-agent join` as typed on a box, and what a window does with who walks in."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from agent_fakes import SALT, Box, FakeLink, FakeWindow, Running, formed

from flodl_wire import environ
from flodl_wire.join_messages import WorldFormed

TOKEN = SALT.hex()


def join(box: Box, *words: str, block: dict[str, Any] | None = None, env: dict[str, str] | None = None) -> Running:
    """Type `flodl-agent join WORDS` in the project, with `block` as fdl would hand it over."""
    more = dict(env or {})
    if block is not None:
        document = {"join": block, "manifest": str(box.project / "fdl.yml")}
        more[environ.CONFIG_JSON] = json.dumps(document).encode().hex()
    running = Running([box.bin / "flodl-agent", "join", *words], box.environment(**more), box.project)
    box.running.append(running)
    return running


def world(box: Box, args: list[str] | None = None) -> WorldFormed:
    """As a window states it to a walk-in: no command, only arguments."""
    return msgspec.structs.replace(formed([], box.project, relay=False), command=None, args=args or [])


def there(window: FakeWindow) -> str:
    return f"127.0.0.1:{window.port}"


def serve(window: FakeWindow, box: Box, instance: str = "instance", args: list[str] | None = None) -> FakeLink:
    """One whole run for the next walk-in."""
    link = window.link()
    link.accept([0], instance, args)
    link.send(world(box, args))
    link.answer_bye()
    return link
