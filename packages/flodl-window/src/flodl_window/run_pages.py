"""What HTTP gets from a run: the board for whoever may read it, the switch for the operator; and where a browser finds
it, which may be a second address that has the page alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from flodl_window import start_proof
from flodl_window.formation import Charter
from flodl_window.http_door import own_names
from flodl_window.live.answers import Answer
from flodl_window.live.binding import PageDoor
from flodl_window.live.board import Board
from flodl_window.live.feed import Watcher
from flodl_window.port import EVERY_ADDRESS, Bound, is_address
from flodl_wire import deadlines

Fired = tuple[int, dict[str, object]]  # the status and the body that answer POST /start


class RunPages:
    """`http_door.Pages` of one run. `fire(trusted)` asks the run to start."""

    def __init__(self, charter: Charter, bound: Bound, board: Board, fire: Callable[[bool], Fired]) -> None:
        self._charter, self._bound, self._board, self._fire = charter, bound, board, fire
        self._names = own_names(charter.controller_host)
        self._apart: PageDoor | None = None

    async def open_apart(self, host: str, port: int) -> str:
        """Serve the page alone there too; what to say about it ("" when nothing)."""
        door = PageDoor(self, deadlines.deadline(deadlines.HTTP_REQUEST))
        if trouble := await door.open(host, port):
            return f"{trouble}; the run's own port has it in any case"
        self._apart = door
        return door.warning

    @property
    def port(self) -> int:
        return self._apart.port if self._apart is not None else self._bound.port

    @property
    def address(self) -> str:
        """Where a browser of this box finds the page."""
        host = self._apart.host if self._apart is not None else self._bound.shown
        if not is_address(host) or host in EVERY_ADDRESS:
            host = "127.0.0.1"
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def close(self) -> None:
        """Tell the watchers the rest and let them go."""
        self._board.end()
        if self._apart is not None:
            self._apart.close()

    # Pages

    def answer(self, path: str, headers: Mapping[str, str]) -> Answer | None:
        return self._board.answer(path, headers)

    def watch(self, watcher: Watcher, headers: Mapping[str, str]) -> None:
        self._board.watch(watcher, headers)

    def unwatch(self, watcher: Watcher) -> None:
        self._board.unwatch(watcher)

    def start(self, *, loopback: bool, authorization: str) -> Fired:
        charter = self._charter
        tunneled = any(host.worker.tunnel for host in charter.roster)
        return self._fire(start_proof.trusted(loopback, tunneled, authorization, charter.salt_hex, charter.instance))

    def is_own_name(self, host: str) -> bool:
        return host.lower() in self._names or is_address(host)
