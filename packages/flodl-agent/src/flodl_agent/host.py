"""The agent's shell: one event loop around the pure machine (agent.py), the link, the keeper, the outputs and the store
listener.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from flodl_agent import descent, site
from flodl_agent import events as ev
from flodl_agent.agent import Agent, Timing
from flodl_agent.hello import cores
from flodl_agent.join_link import JoinLink, dial
from flodl_agent.keeping import Keeping
from flodl_agent.load import EVERY_S, LoadMeter
from flodl_agent.outputs import Outputs
from flodl_agent.plan import Place, check_interface, localize, plan_children
from flodl_agent.preload import Read, plan_preload
from flodl_agent.report import Story
from flodl_agent.road import CannotDial, interface_of
from flodl_agent.run_dir import make_run_dir
from flodl_agent.store_listener import StoreListener
from flodl_wire import deadlines, exits, sibling
from flodl_wire.address import Address
from flodl_wire.channel import parse_salt
from flodl_wire.faults import Broken, Fault
from flodl_wire.join_messages import Accept, Hello, JoinDown, Log, Step, WorldFormed
from flodl_wire.libtorch import Variant
from flodl_wire.specs import AgentSpec

_RETRY = 0.5  # seconds between two tries to dial: 60 of them make the connect budget
_RELAY_LINGER = 2.0
_TELLS_LOAD = ("waiting", "formed", "running")
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def timing() -> Timing:
    return Timing(
        connect_budget=deadlines.deadline(deadlines.CONNECT_BUDGET),
        retry=deadlines.beat(_RETRY),
        verdict_wait=deadlines.deadline(deadlines.VERDICT_WAIT),
        formation_margin=deadlines.deadline(deadlines.VERDICT_WAIT),
        beat=deadlines.beat(),
        silence=deadlines.deadline(deadlines.SILENCE),
        grace=deadlines.deadline(deadlines.KILL_GRACE),
        relay_linger=deadlines.deadline(_RELAY_LINGER),
    )


class Host:
    """One host's part in one run. `watch_stdin`: its end ends us."""

    def __init__(
        self,
        spec: AgentSpec,
        hello: Hello,
        own_command: list[str],
        story: Story,
        *,
        watch_stdin: bool,
        variant: Variant | None = None,
    ) -> None:
        self._spec = spec
        self._hello = hello
        self._own_command = own_command
        self._watch_stdin = watch_stdin
        self._variant = variant
        self._timing = timing()
        self._agent = Agent(
            hello,
            str(Address(spec.controller_host, spec.controller_port)),
            self._timing,
            time.monotonic(),
            finished=spec.finished,
            schema=spec.model_schema,
        )
        self._story = story
        self._salt = parse_salt(spec.salt_hex, "salt_hex of the agent's spec") if spec.salt_hex else None
        self._link: JoinLink | None = None
        self._dialling: asyncio.Task[None] | None = None
        self._keeping: Keeping | None = None
        self._listener: StoreListener | None = None
        self._meter: LoadMeter | None = None
        self._load_due = 0.0
        self._room = True
        self._run_dir = ""
        self._loop: asyncio.AbstractEventLoop
        self._outputs: Outputs
        self._finished: asyncio.Future[ev.Finish]

    async def run(self) -> ev.Finish:
        """Take part from the first dial to the last goodbye; how to exit."""
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(_lose_our_mind)
        self._finished = self._loop.create_future()
        self._outputs = Outputs(self._show)
        descent.become_subreaper()  # should the keeper be killed, its orphans come to us
        descent.wake_with_parent()  # who started us (sshd on another box) reads no stdin for us while we are stopped
        for number in _SIGNALS:
            self._loop.add_signal_handler(number, self._happened, ev.Signalled(number.name))
        if self._watch_stdin:
            self._loop.call_soon(self._listen_to_stdin)
        ticker = self._loop.create_task(self._tick())
        try:
            return await self._finished
        finally:
            if self._dialling:
                self._dialling.cancel()
            if self._link:
                await self._link.goodbye()
            ticker.cancel()
            if self._keeping:
                await self._keeping.let_go()
            if self._listener:
                self._listener.close()
            if self._run_dir:
                shutil.rmtree(self._run_dir, ignore_errors=True)

    # ---- events

    def _happened(self, event: ev.Event) -> None:
        self._story.saw(event)
        for effect in self._agent.handle(event, time.monotonic()):
            self._do(effect)

    async def _tick(self) -> None:
        while True:
            self._happened(ev.Ticked())
            self._tell_load()
            await asyncio.sleep(self._timing.beat / 2)

    def _tell_load(self) -> None:
        """What the box does, now and then. With a full link it waits, and is read when there is room: only the newest
        counts.
        """
        now = self._loop.time()
        if self._link is None or self._agent.phase not in _TELLS_LOAD or not self._room or now < self._load_due:
            return
        self._load_due = now + deadlines.beat(EVERY_S)
        if self._meter is None:
            self._meter = LoadMeter(self._hello.devices)
            return
        if self._keeping is not None:
            self._meter.watch_gpus()
        if (load := self._meter.read()) is not None:
            self._link.send(load)

    def _set_room(self, room: bool) -> None:
        self._room = room
        self._outputs.set_room(room)

    def _listen_to_stdin(self) -> None:
        try:
            self._loop.add_reader(0, self._read_stdin)
        except PermissionError:  # a file: epoll does not take those, and its end has been reached in any case
            self._happened(ev.StdinClosed())

    def _read_stdin(self) -> None:
        if not os.read(0, 4096):
            self._loop.remove_reader(0)
            self._happened(ev.StdinClosed())

    def _received(self, message: JoinDown) -> None:
        if isinstance(message, Accept) and message.salt_hex and self._salt is None:
            self._salt = parse_salt(message.salt_hex, "the salt in the controller's Accept")
        self._happened(message)

    def _lost(self, lost: ev.LinkLost) -> None:
        self._outputs.set_room(True)  # nobody reads it any more, and a process must not wait for that
        self._happened(lost)

    # ---- effects

    def _do(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Dial(seconds):
                self._dialling = self._loop.create_task(self._dial(seconds))
            case ev.Send(message):
                if self._link:
                    self._link.send(message)
            case ev.Launch(formed):
                self._launch(formed)
            case ev.BeatKeeper():
                if self._keeping:
                    self._keeping.beat()
            case ev.TellTrained():
                if self._keeping:
                    self._keeping.trained()
            case ev.StopKeeper(grace):
                if self._keeping:
                    self._keeping.stop(grace)
            case ev.KillKeeper():
                if self._keeping:
                    self._keeping.kill()
            case ev.Finish() if not self._finished.done():
                self._finished.set_result(effect)

    async def _dial(self, seconds: float) -> None:
        try:
            link = await dial(self._spec.controller_host, self._spec.controller_port, self._salt, seconds)
        except CannotDial as err:
            self._happened(err.failed)
            return
        self._link = link
        link.on_message, link.on_lost, link.on_room = self._received, self._lost, self._set_room
        self._happened(ev.LinkOpened(link.own_address))

    def _launch(self, formed: WorldFormed) -> None:
        """All or nothing, in the main thread, and the keeper stands when we return."""
        try:
            place = self._settle(formed)
            children = plan_children(localize(formed, place), place)
            self._keeping = Keeping(self._spec.host, self._happened, self._outputs)
            gpus = any(offer.kind != "cpu" for offer in place.offers)
            preload = plan_preload(children, formed.envelope.mode, gpus=gpus, read=_texts_of(children[-1].cwd))
            self._keeping.start(children, self._run_dir, preload)
        except Fault as fault:
            self._happened(ev.CannotStart(fault, keeper=False))
        except OSError as err:
            what = f"cannot start the processes of {self._spec.host}"
            self._happened(ev.CannotStart(Broken("no-start", what, err.strerror or str(err)), keeper=False))

    def _settle(self, formed: WorldFormed) -> Place:
        """What the plan needs of this box: a folder for sockets, the relay's executable, in mode torch a listener."""
        assert self._link
        self._run_dir = make_run_dir()
        place = Place(
            spec=self._spec,
            offers=self._hello.devices,
            environment={_exact(name): _exact(value) for name, value in os.environb.items()},
            bin_dir=str(Path(sys.executable).parent),
            cores=cores(),
            address=self._link.address,
            port=self._link.port,
            run_dir=self._run_dir,
            planes=sibling.require("flodl-planes") if formed.relay else "",
            own_command=self._own_command,
            site=site.of(self._spec),
            variant=self._variant,
        )
        mode, interface = formed.envelope.mode, formed.envelope.worker.nccl_socket_ifname
        if mode == "torch" or mode.startswith("nccl"):
            check_interface(interface, [name for _, name in socket.if_nameindex()], self._spec.host)
            place = replace(place, interface=interface or interface_of(self._link.own_address))
            self._listener = StoreListener((place.address, place.port), self._salt, self._tell)
            self._listener.open()
            place = replace(place, store_port=self._listener.port)
        return place

    def _tell(self, line: str) -> None:
        if self._link:
            self._link.send(Step(line))

    def _show(self, name: str, stream: str, lines: list[str]) -> None:
        """Output of "relay" or "rank N" on its way up."""
        kind, _, number = name.partition(" ")
        if self._link:
            self._link.send(Log(lines, int(number) if number else None, kind, stream))


def _lose_our_mind(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A mistake of ours must not leave half an agent behind. Without us the keeper ends everything, the link's end
    tells the rest.
    """
    loop.default_exception_handler(context)
    sys.stderr.flush()
    os._exit(exits.NOT_DONE)


def _texts_of(folder: str) -> Read:
    def read(path: str) -> str | None:
        try:
            return Path(folder, path).read_text("utf-8")
        except (OSError, ValueError):
            return None

    return read


def _exact(raw: bytes) -> str:
    """The environment's bytes as a text from which they can be had again, whatever the locale."""
    return raw.decode("utf-8", "surrogateescape")
