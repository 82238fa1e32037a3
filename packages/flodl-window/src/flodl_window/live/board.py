"""The board that a run writes on for those who watch: history, feed and answers, as the launcher and the door see it.

The launcher calls `note_…` of `history` as news comes and `tick` twice a second; the door asks `answer`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from flodl_window.live import answers, metrics, requests
from flodl_window.live.answers import Answer
from flodl_window.live.feed import MOST_PAGES, Feed, Watcher
from flodl_window.live.history import History
from flodl_wire.hub_messages import EpochDone, FromHub, Notice, Progress, Timeline, TrainingBegan
from flodl_wire.state import State

TICK_S = 0.5
FRESH_S = 1.0  # how old an encoded document may be; a crowd of readers costs one encoding a second


class Board:
    """`state` answers the state at this moment, `clock` seconds that start at the window's opening."""

    def __init__(
        self, run: str, mode: str, instance: str, state: Callable[[], State], clock: Callable[[], float]
    ) -> None:
        self._state, self._clock = state, clock
        self.history = History(run, mode, time.time() - clock())
        self.feed = Feed(instance, self._history_json, self._state_json)
        self._kept: dict[str, tuple[float, bytes]] = {}
        self._phase = ""
        self._urgent = False

    # the launcher's side

    def hear(self, message: FromHub) -> None:
        """The hub's figures."""
        now, history = self._clock(), self.history
        if isinstance(message, Progress):
            history.note_progress(now, message)
        elif isinstance(message, Timeline):
            history.note_timeline(now, message)
        elif isinstance(message, EpochDone):
            history.note_epoch(now, message)
        elif isinstance(message, TrainingBegan):
            history.note_began(now)
        elif isinstance(message, Notice):
            history.note_mark(now, "notice", message.text)

    def note_phase(self, phase: str, why: str) -> None:
        """The phase may have changed."""
        if phase != self._phase:
            self._phase, self._urgent = phase, True
            self.history.note_mark(self._clock(), phase, why)

    def note_state(self) -> None:
        """Something of the state has changed that pages should not wait for."""
        self._urgent = True

    def tick(self) -> None:
        """Tell the pages what is new; call it every `TICK_S`."""
        now = self._clock()
        self._tell(now)
        self.feed.look(now, urgent=self._urgent)
        self._urgent = False

    def _tell(self, now: float) -> None:
        news = self.history.take(now)
        if news:
            self.feed.tell(msgspec.json.encode(news), now)

    def end(self) -> None:
        """Tell the rest and let the pages go."""
        self.tick()
        self.feed.end()

    def document(self) -> bytes:
        """The history with the state in it, as /history.json has it."""
        return self._history_json()

    # the door's side

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        """What to say to a GET; None when there is nothing of that name."""
        if path == "/" and requests.wants_page(headers):
            return answers.page(headers)
        if path in ("/", "/state.json"):
            return Answer(200, msgspec.json.encode(self._state()) + b"\n", headers={"Vary": "Accept"})
        if path == "/history.json":
            return Answer(200, self._fresh("history", self._history_json) + b"\n")
        if path == "/metrics":
            text = self._fresh("metrics", lambda: metrics.render(self._state(), self.history))
            return Answer(200, text, metrics.TYPE)
        if path == "/events":
            if self.feed.full:
                error = f'{{"error": "{MOST_PAGES} pages are open already; close one"}}\n'
                return Answer(503, error.encode(), headers={"Retry-After": "5"})
            return Answer(200, type=answers.EVENTS, stream=True)
        return None

    def watch(self, watcher: Watcher, headers: Mapping[str, str]) -> None:
        """The head of the stream is out: its page is one of ours until `unwatch`."""
        self._tell(self._clock())  # else what the history has already would come once more as news
        self.feed.enter(watcher, headers.get("last-event-id", ""), self._clock())

    def unwatch(self, watcher: Watcher) -> None:
        self.feed.leave(watcher)

    def _fresh(self, name: str, make: Callable[[], bytes]) -> bytes:
        now = self._clock()
        kept = self._kept.get(name)
        if kept is None or now - kept[0] > FRESH_S:
            kept = self._kept[name] = (now, make())
        return kept[1]

    def _history_json(self) -> bytes:
        state = self._state()
        return msgspec.json.encode({**self.history.document(self._clock()), "state": msgspec.to_builtins(state)})

    def _state_json(self) -> bytes:
        return msgspec.json.encode(self._state())
