"""The launcher: carries out what the run orders. Sockets, children, clocks, files and signals live here; decisions
live in run.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal

from flodl_window import events as ev
from flodl_window import last_words
from flodl_window.aftermath.keeping import Keeping
from flodl_window.asked_to_end import AskedToEnd, Wish
from flodl_window.children import Children
from flodl_window.door import Door, DoorLimits
from flodl_window.formation import Charter
from flodl_window.join_link import JoinLink
from flodl_window.limits import scaled
from flodl_window.live.board import TICK_S, Board
from flodl_window.narration import Narration
from flodl_window.phases import Phase
from flodl_window.port import Bound
from flodl_window.run import Run
from flodl_window.run_dir import RunDir
from flodl_window.run_pages import Fired, RunPages
from flodl_window.served_folder import ServedFolder
from flodl_window.siblings import Tools
from flodl_window.snapshot import snapshot
from flodl_window.words import count, listed
from flodl_wire import deadlines, exits
from flodl_wire.channel import parse_salt
from flodl_wire.hub_messages import FromHub
from flodl_wire.join_messages import Beat, Hello, HostLoad, JoinUp, Log, WorldFormed
from flodl_wire.specs import FanoutEvent
from flodl_wire.state import Afterthought, State

STILL_EVERY = 10.0  # seconds of silence before a line says what is waited for
STATE_EVERY = 0.25  # seconds between two state.json within one phase: a thousand hellos are not a thousand files


class Launcher:
    """One run from the open window to the exit code; `await run()` once. `page_at`: a second address for the page."""

    def __init__(
        self,
        charter: Charter,
        bound: Bound,
        run_dir: RunDir,
        narration: Narration,
        tools: Tools,
        page_at: tuple[str, int] | None = None,
    ) -> None:
        self.charter, self.bound, self.run_dir, self.narration = charter, bound, run_dir, narration
        self._children = Children(tools, charter, self)
        self._page_at = page_at
        self._served = ServedFolder(charter.served)
        self._links: dict[int, JoinLink] = {}
        self._code = exits.NOT_DONE
        self._start_answer: Fired = (503, {"error": "not yet"})
        self._state_due = 0.0
        self._state_dirty = False
        self._spoke_at = 0.0
        self._bar_waits = False
        self._trouble_said = False
        self._asked = AskedToEnd()
        self._leaving = False
        self._written_phase: Phase | None = None
        self._afterthought: Afterthought | None = None

    async def run(self) -> int:
        """Serve the run to its end; the exit code."""
        self._loop = asyncio.get_running_loop()
        self._finished = asyncio.Event()
        self.machine = Run(self.charter, scaled(), self._loop.time())
        self.keeping = Keeping(self.run_dir, self.charter, self.machine.opened)
        self.keeping.begin(self._loop)
        self.board = Board(self.charter.run, self.charter.mode, self.charter.instance, self._state, self._elapsed)
        self.pages = RunPages(self.charter, self.bound, self.board, self._fire)
        _raise_file_limit()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            self._loop.add_signal_handler(number, self._signalled, number)
        try:
            await self._open()
            ticker = asyncio.ensure_future(self._tick())
            showing = asyncio.ensure_future(self._show())
            await self._finished.wait()
            ticker.cancel()
            await self._serve_terminal_state()
            showing.cancel()
            return self._code
        finally:
            self._close()

    # opening

    async def _open(self) -> None:
        salt = parse_salt(self.charter.salt_hex, "the run's salt")
        openly = self.charter.knobs.admission == "open"
        pair = self._children.start_hub(self.run_dir.path)
        self.door = Door(
            self.bound.socks,
            owner=self,
            pages=self.pages,
            hub=pair,
            salt_for=lambda keyed: salt if keyed or not openly else None,
            limits=DoorLimits(deadlines.deadline(deadlines.PREFACE), deadlines.deadline(deadlines.HTTP_REQUEST)),
            complain=self._say,
            refused=lambda address, fault: self._handle(ev.StrangerRefused(address, fault)),
        )
        await self.door.open()
        remark = await self.pages.open_apart(*self._page_at) if self._page_at else ""
        self._announce(remark)
        self._write_state()
        if self.charter.fanout:
            self._children.start_fanout()

    def _announce(self, of_the_page: str) -> None:
        charter = self.charter
        knobs = charter.knobs
        ranks, exact = self.machine.ledger.capacity()
        if knobs.quorum != "capacity":
            ranks, exact = knobs.quorum, True
        hosts = [host.host for host in charter.roster]
        whom = f"{count(ranks, 'rank')}{'' if exact else ' or more'}" + (f" on {listed(hosts)}" if hosts else "")
        self._say(
            f"window open on {self.bound.shown}:{self.bound.port} for {whom}; mode {charter.mode}, run {charter.run}"
        )
        self._say(f"live page: {self.pages.address}")
        for remark in filter(None, (of_the_page, self.bound.note)):
            self._say(remark)
        if knobs.admission == "open" and not self.bound.loopback:
            self._say(
                "WARNING: open_admission lets in ANYBODY who reaches this port; they take part and can alter your "
                "training. Sound only on a network you trust entirely; else set controller.join.token"
            )

    # the run's events and effects

    def _handle(self, event: ev.Event) -> None:
        """Have the machine take `event` in; before any that could close the window, what has been published by now."""
        if self.machine.phase.window_open and (runs := self._served.news()) is not None:
            self._take_in(ev.RunsServed(runs))
        self._take_in(event)

    def _take_in(self, event: ev.Event) -> None:
        now = self._loop.time()
        self.keeping.before(event, self.machine, now)
        for effect in self.machine.handle(event, now):
            match effect:
                case ev.Send(link, WorldFormed() as letter):
                    if link in self._links:
                        self._links[link].put_off(letter)
                        self.door.queue(self._links[link].send_put_off)
                case ev.Send(link, message):
                    if link in self._links:
                        self._links[link].send(message)
                case ev.Shut(link, lost):
                    if link in self._links:
                        self._links[link].shut(lost)
                case ev.TellHub(message):
                    self._children.tell_hub(message)
                case ev.Say(text):
                    self._say(text)
                case ev.ShowProgress(progress):
                    self._spoke_at = now
                    self.narration.progress(progress, now)
                case ev.Publish():
                    self._state_dirty = True
                    self.board.note_phase(self.machine.phase.value, self.machine.why)
                case ev.EndFanout():
                    self._children.end_fanout()
                case ev.HurryFanout():
                    self._children.hurry_fanout()
                case ev.KillChildren():
                    self._children.kill()
                case ev.AnswerStart(status, body):
                    self._start_answer = (status, body)
                case ev.Conclude(code):
                    self._code = code
                    self._finished.set()
        self.keeping.after(self.machine, now)
        if self._state_dirty and (now >= self._state_due or self.machine.phase is not self._written_phase):
            self._write_state()

    async def _tick(self) -> None:
        """The machine's clock, the links' beat and the reminders that we are alive."""
        interval = deadlines.beat()
        parts = 4
        turn = 0
        while True:
            await asyncio.sleep(interval / parts)
            turn += 1
            if turn % parts == 0:
                for effect in self.machine.beats():
                    if isinstance(effect, ev.Send) and effect.link in self._links:
                        self._links[effect.link].send(effect.message)
            self._handle(ev.Ticked())
            self._remind()

    async def _show(self) -> None:
        """News for the open pages, twice a second."""
        while True:
            await asyncio.sleep(TICK_S)
            self.board.tick()

    def _remind(self) -> None:
        """Nobody stares at silence: say what is waited for, on a terminal all the time, elsewhere now and then."""
        machine, now = self.machine, self._loop.time()
        if machine.phase in (Phase.WAITING, Phase.STAGING, Phase.FORMING):
            waited = now - (machine.formed_at if machine.phase is Phase.FORMING else machine.opened)
            self._bar_waits = True
            self.narration.waiting(f"{machine.phase.value}: {machine.why} ({waited:.0f} s)")
            own = machine.world is not None and machine.world.on_their_own  # who may be at it for hours
            if now - self._spoke_at >= STILL_EVERY and not own:
                self._say(f"still {machine.phase.value}: {machine.why} ({waited:.0f} s)")
        elif self._bar_waits or machine.phase.terminal:
            self._bar_waits = False
            self.narration.waiting("")

    def _say(self, text: str) -> None:
        self._spoke_at = self._loop.time()
        self.narration.say(text)

    # links: LinkOwner

    def link_hello(self, link: JoinLink, hello: Hello) -> None:
        self._links[link.number] = link
        self._handle(ev.HelloReceived(link.number, hello, link.address, link.keyed))

    def link_message(self, link: JoinLink, message: JoinUp) -> None:
        if isinstance(message, (Beat, Log, HostLoad)):
            self.machine.hear(link.number, self._loop.time())
            if isinstance(message, Log):
                self._log(link, message)
            elif isinstance(message, HostLoad):
                self._load(link, message)
        else:
            self.keeping.clean_message(message)
            self._handle(ev.LinkMessage(link.number, message))

    def link_closed(self, link: JoinLink, why: str) -> None:
        self._links.pop(link.number, None)
        self._handle(ev.LinkClosed(link.number, why))

    def _log(self, link: JoinLink, log: Log) -> None:
        host = self.machine.host_of(link.number)
        if host:
            where = str(log.rank) if log.rank is not None else "relay" if log.source == "relay" else "agent"
            stream = "out" if log.stream == "out" and log.rank is not None else "err"
            # After the verdict a relay only complains of the coordinator's end, on top of the cause.
            if not (where == "relay" and self.machine.phase.terminal):
                self.narration.output(f"{host}:{where}", stream, log.lines)
            kept = self.keeping.clean(log.lines)
            self.run_dir.log(f"{host}-{where}", kept)
            self.board.history.note_lines(f"{host}:{where}", kept)
            self._check_trouble()

    def _load(self, link: JoinLink, load: HostLoad) -> None:
        entry = self.machine.ledger.members.get(self.machine.host_of(link.number))
        if entry is not None:
            labels = {offer.index: offer.label for offer in entry.devices if offer.kind != "cpu"}
            self.board.history.note_load(self._elapsed(), entry.host, load, labels)

    # children: ChildOwner

    def child_said(self, text: str) -> None:
        self._say(text)

    def hub_message(self, message: FromHub) -> None:
        self.keeping.clean_message(message)
        self.board.hear(message)
        self._handle(ev.HubReported(message))

    def hub_ended(self, how: str, tail: list[str]) -> None:
        self._handle(ev.HubEnded(how, tuple(self.keeping.clean(tail))))

    def fanout_event(self, event: FanoutEvent) -> None:
        event.text = self.keeping.mask.known(event.text)
        self._handle(ev.FanoutReported(event))

    def fanout_ended(self, how: str, tail: list[str]) -> None:
        self._handle(ev.FanoutEnded(how, tuple(self.keeping.clean(tail))))

    # what the pages show and may order

    def _state(self) -> State:
        state = snapshot(self.machine, self._loop.time())
        state.dashboard_port, state.afterthought = self.pages.port, self._afterthought
        return state

    def _elapsed(self) -> float:
        """Seconds since the window opened."""
        return self._loop.time() - self.machine.opened

    def _fire(self, trusted: bool) -> Fired:
        self._handle(ev.StartAsked(trusted))
        return self._start_answer

    # files

    def _write_state(self) -> None:
        now = self._loop.time()
        self._state_due = now + STATE_EVERY
        self._state_dirty, self._written_phase = False, self.machine.phase
        self.run_dir.write_state(self._state())
        self._check_trouble()

    def _check_trouble(self) -> None:
        if self.run_dir.trouble and not self._trouble_said:
            self._trouble_said = True
            self._say(f"{self.run_dir.trouble}; the run goes on without it")

    # the end

    def _signalled(self, number: int) -> None:
        """The first ends the run gracefully; a second one, or one after the end, leaves at once."""
        name = signal.Signals(number).name
        wish = self._asked.heard(self._loop.time(), over=self._finished.is_set())
        if wish is Wish.END:
            self._say(f"{name}: ending the run (once more to leave at once)")
            self._handle(ev.Interrupted(name))
        elif wish is Wish.LEAVE:
            self._say(f"{name}: leaving at once")
            self._code = self.machine.exit_code if self.machine.phase.terminal else exits.INTERRUPTED
            self._leaving = True
            self._finished.set()

    async def _serve_terminal_state(self) -> None:
        """Write what the run leaves, say what happened, and let a poller see it."""
        result = last_words.result_of(self.machine)
        self.run_dir.write_result(result)
        self._write_state()
        self.board.tick()
        self.run_dir.write_history(self.board.document())
        self.narration.waiting("")
        for line in last_words.of(machine := self.machine, result, self.run_dir.path):
            self._say(line)
        looking_back = asyncio.ensure_future(self._look_back())
        left = (machine.verdict_at or 0.0) + deadlines.beat(deadlines.TERMINAL_SERVE) - self._loop.time()
        until = self._loop.time() + max(0.0, left)
        while not self._leaving and self._loop.time() < until:
            await asyncio.sleep(min(0.05, max(0.0, until - self._loop.time())))
        if trouble := await looking_back:
            self._say(trouble)

    async def _look_back(self) -> str:
        """Have the state say what `fdl why` will, and write the report; what hindered that."""
        self._afterthought = await asyncio.to_thread(self.keeping.afterthought)
        if self._afterthought is not None:
            self._write_state()
            self.board.note_state()
            self.board.tick()
        return await asyncio.to_thread(self.keeping.report)

    def _close(self) -> None:
        self.pages.close()
        if hasattr(self, "door"):
            self.door.close()
        for link in list(self._links.values()):
            link.shut(lost=True)
        self._children.close()
        self.run_dir.close()
        for sock in self.bound.socks:
            sock.close()
        self.narration.close()


def _raise_file_limit() -> None:
    """A link, a log and their friends for each of a thousand hosts."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65536 if hard == resource.RLIM_INFINITY else min(hard, 65536)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
