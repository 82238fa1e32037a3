"""The run's two children: the hub, with the pair that we speak over and the folder of its sockets, and the fan-out."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Protocol

from flodl_window import fanout_child, hub_child
from flodl_window.child import Child
from flodl_window.formation import Charter
from flodl_window.hub_pair import HubPair
from flodl_window.siblings import Tools
from flodl_wire.hub_messages import FromHub, ToHub
from flodl_wire.specs import FanoutEvent

HUB_EXIT = 2.0  # seconds between the end of the pair and the end of its process


class ChildOwner(Protocol):
    """Whoever has such children: the launcher. `how` is the end in words, `tail` the last lines on stderr."""

    def child_said(self, text: str) -> None: ...
    def hub_message(self, message: FromHub) -> None: ...
    def hub_ended(self, how: str, tail: list[str]) -> None: ...
    def fanout_event(self, event: FanoutEvent) -> None: ...
    def fanout_ended(self, how: str, tail: list[str]) -> None: ...


class Children:
    """Nobody at first; what is told to a child that never was, or has ended, goes nowhere."""

    def __init__(self, tools: Tools, charter: Charter, owner: ChildOwner) -> None:
        self._tools, self._charter, self._owner = tools, charter, owner
        self._hub: Child | None = None
        self._pair: HubPair | None = None
        self._socket_dir: Path | None = None
        self._fanout: Child | None = None

    def start_hub(self, run_dir: Path) -> HubPair:
        """Inside a running loop; the pair is open."""
        self._socket_dir = hub_child.make_socket_dir(self._charter.run)
        self._hub, ours = hub_child.start(
            self._tools.hub, self._charter, run_dir, self._socket_dir, self._hub_said, self._hub_ended
        )
        self._pair = HubPair(ours, self._owner.hub_message, self._pair_ended)
        self._pair.open()
        return self._pair

    def start_fanout(self) -> None:
        owner = self._owner
        self._fanout = fanout_child.start(
            self._tools.fanout, self._charter, owner.fanout_event, owner.child_said, self._fanout_ended
        )

    def tell_hub(self, message: ToHub) -> None:
        if self._pair is not None:
            self._pair.tell(message)

    def end_fanout(self) -> None:
        """Its stdin ends: it ends its agents and itself."""
        if self._fanout is not None:
            self._fanout.close_stdin()

    def hurry_fanout(self) -> None:
        if self._fanout is not None:
            self._fanout.kill(signal.SIGTERM)

    def kill(self) -> None:
        for child in (self._hub, self._fanout):
            if child is not None:
                child.kill()

    def close(self) -> None:
        """Nobody is left, nor anything of theirs."""
        if self._pair is not None:
            self._pair.close()
        self.kill()
        if self._socket_dir is not None:
            hub_child.remove_socket_dir(self._socket_dir)

    def _hub_said(self, text: str) -> None:
        self._owner.child_said(f"[hub] {text}")

    def _pair_ended(self, why: str) -> None:
        """The hub is gone or speaks nonsense; its process' own end says how, and it must come soon."""
        if self._hub is not None and self._hub.alive:
            if why:
                self._hub_said(why)
            asyncio.get_running_loop().call_later(HUB_EXIT, self._hub.kill)

    def _hub_ended(self, how: str) -> None:
        assert self._hub is not None
        self._owner.hub_ended(how, list(self._hub.tail))

    def _fanout_ended(self, how: str) -> None:
        assert self._fanout is not None
        self._owner.fanout_ended(how, list(self._fanout.tail))
