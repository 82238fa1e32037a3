"""What the fan-out's events mean: which agent is gone, and what is said when one goes before there is a world. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from flodl_window.events import Effect, FanoutEnded, Say
from flodl_window.verdict import Incident, Surety
from flodl_window.words import ending_of
from flodl_wire.faults import Fault
from flodl_wire.specs import FanoutEvent


def agent_end(event: FanoutEvent) -> str:
    """How the agent (or its ssh) ended, in words."""
    return ending_of(event.code if event.code is not None else 1)


def last_words(event: FanoutEvent) -> list[str]:
    return [line for line in event.text.splitlines() if line.strip()]


def reason_and_fix(words: Sequence[str]) -> tuple[str, str]:
    """The last line of a program that is no advice, and the advice behind it ("" for none): ours end with "fix: …"."""
    said = [line for line in words if not line.startswith("fix: ")]
    fix = words[-1].removeprefix("fix: ") if words and words[-1].startswith("fix: ") else ""
    return (said[-1] if said else ""), fix


class FanoutWatch:
    """Remembers each host's command for the message that needs it."""

    def __init__(self) -> None:
        self._commands: dict[str, str] = {}

    def note(self, event: FanoutEvent) -> list[Effect]:
        if event.kind == "started":
            self._commands[event.host] = event.command
        elif event.kind == "line":
            return [Say(f"[{event.host}] {event.text}")]
        return []

    def gone_early(self, event: FanoutEvent, refused: Fault | None, now: float) -> Incident:
        """An agent we started has ended before there was a world, be it with 0: nobody will come in its place.

        `refused`: why the door turned that host away, when it did.
        """
        words = last_words(event)
        if refused is not None:
            return Incident(now, Surety.CAUSE, refused.what, event.host, None, refused.why, refused.fix, words)
        said, fix = reason_and_fix(words)
        why = f"its agent ended ({agent_end(event)}): {said or 'it said nothing'}"
        command = event.command or self._commands.get(event.host, "")
        fix = fix or (f"the command was: {command}" if command else "")
        return Incident(now, Surety.CAUSE, f"host {event.host} could not join", event.host, None, why, fix, words)

    def ended(self, event: FanoutEnded, now: float) -> Incident:
        """The fan-out itself is gone while it still has agents. One that ends by itself (exit 0) has lost its last
        agent; those links' own ends are on the way and say more.
        """
        surety = Surety.DOUBTFUL if event.how == "exit 0" else Surety.CAUSE
        return Incident(now, surety, "fan-out lost", why=f"flodl-agent fanout {event.how}", tail=list(event.tail))
