"""The links of those who are in: who is at the other end of each, and who has fallen silent. Pure."""

from __future__ import annotations

CLOCK_JUMP = 5.0  # seconds between two looks: the box was asleep or stopped, and nobody's silence can be blamed on them


class Links:
    """By the number of a link, in the order in which they came in. `now` is in seconds of any steady clock."""

    def __init__(self, now: float) -> None:
        self._hosts: dict[int, str] = {}
        self._heard: dict[int, float] = {}  # when it last said anything
        self._looked = now

    def take_in(self, link: int, host: str, now: float) -> None:
        """`host` has said hello by it, and is in."""
        self._hosts[link], self._heard[link] = host, now

    def hear(self, link: int, now: float) -> None:
        """Something has come by it, if only a beat. Of one that is not in nothing is kept."""
        if link in self._hosts:
            self._heard[link] = now

    def forget(self, link: int) -> str:
        """It is over; the host it was, "" when it was nobody's."""
        self._heard.pop(link, None)
        return self._hosts.pop(link, "")

    def host_of(self, link: int) -> str:
        """ "" for nobody's."""
        return self._hosts.get(link, "")

    def silent_for(self, link: int, now: float) -> float:
        """Seconds since it said anything; 0 for one that is not in."""
        return now - self._heard.get(link, now)

    def silent(self, limit: float, now: float) -> list[int]:
        """Those that have said nothing for `limit` seconds. To be asked several times a second."""
        if now - self._looked > CLOCK_JUMP:
            self._heard = dict.fromkeys(self._heard, now)
        self._looked = now
        return [link for link in self._heard if self.silent_for(link, now) >= limit]

    @property
    def open(self) -> list[int]:
        return list(self._hosts)

    @property
    def hosts(self) -> list[str]:
        return list(self._hosts.values())
