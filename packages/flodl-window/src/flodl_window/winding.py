"""After the verdict: links first, so that the last lines and exits still arrive; then the fan-out, which ends its
agents and kills those that do not end; then force. Ten seconds in all.
"""

from __future__ import annotations

from flodl_window.events import Conclude, Effect, EndFanout, HurryFanout, KillChildren, Publish, Shut
from flodl_window.limits import Limits


class WindingDown:
    """Who of ours still lives, and what they have been told."""

    def __init__(self, limits: Limits, *, fanout_alive: bool) -> None:
        self.fanout_alive = fanout_alive
        self.hub_alive = True
        self._limits = limits
        self._told = self._hurried = self._killed = self._concluded = False

    def end_fanout(self) -> list[Effect]:
        """Tell the fan-out to end, once."""
        if not self.fanout_alive or self._told:
            return []
        self._told = True
        return [EndFanout()]

    def go_on(self, waited: float, links: list[int], exit_code: int) -> list[Effect]:
        """What is due `waited` seconds after the verdict; `links` are those still open."""
        out: list[Effect] = []
        if not links or waited >= self._limits.fanout_end:
            out += self.end_fanout()
        if waited >= self._limits.hurry and self.fanout_alive and not self._hurried:
            self._hurried = True
            out.append(HurryFanout())
        quiet = not links and not self.fanout_alive and not self.hub_alive
        if not quiet and waited >= self._limits.give_up and not self._killed:
            self._killed = True
            out += [Shut(link, lost=True) for link in links]
            out.append(KillChildren())
        if (quiet or self._killed) and not self._concluded:
            self._concluded = True
            out += [Publish(), Conclude(exit_code)]
        return out
