"""Where the other tools are: the hub's and the fan-out's commands, found before anything starts."""

from __future__ import annotations

from dataclasses import dataclass

from flodl_wire import sibling


@dataclass(frozen=True)
class Tools:
    """Command lines of the children, without what each start adds."""

    hub: list[str]
    fanout: list[str]

    @classmethod
    def find(cls, *, fanout: bool) -> Tools:
        """The installed ones. Raises Refused naming the package to install."""
        hub = [sibling.require("flodl-planes"), "hub"]
        return cls(hub, [sibling.require("flodl-agent"), "fanout"] if fanout else [])
