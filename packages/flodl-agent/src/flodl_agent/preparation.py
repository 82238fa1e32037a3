"""What a walk-in's box must have before anybody is dialled, in the reference's order (§8.2), anew before every dial.

    a device ─▶ its data ─▶ folders to write to ─▶ the source ─▶ torch ─▶ code for the devices ─▶ the build

Admission starts a deadline for everybody who is in, so nothing that takes time is left for later; and what changed
since the last dial (another run, a mount that died) is taken up by the next. Each step is a fact or a Fault: Refused
for a flaw of this box that no later dial finds gone, Transient or Broken for all else.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from flodl_agent import data_mount, entry, pulled_run, stage, torch_choice, torch_fit
from flodl_agent.data_mount import DataMount
from flodl_agent.join_recipe import Recipe
from flodl_agent.offer import find_offers
from flodl_agent.pulled_run import Pulled
from flodl_wire import libtorch
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer
from flodl_wire.libtorch import Variant


@dataclass(frozen=True)
class Prepared:
    """`program` starts in `folder`; `script` is its Python file, "" where there is none to look at. `args` None: those
    that the controller states. `run`: identity of a published run, "" for any other.
    """

    program: list[str]
    script: str
    folder: str
    args: list[str] | None
    offers: list[DeviceOffer]
    run: str = ""
    variant: Variant | None = None

    @property
    def environment(self) -> dict[str, str]:
        """What the program finds of the variant, laid over ours."""
        return libtorch.environment(self.variant, os.environ)


@dataclass
class Preparation:
    """One walk-in's. `say` tells the person at the box; a note is told once. Ends what it mounted with `close`."""

    recipe: Recipe
    say: Callable[[str], None]
    _noted: set[str] = field(default_factory=set)
    _mount: DataMount | None = None
    _built: str = ""  # run that was built last

    def __enter__(self) -> Preparation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._mount is not None:
            self._mount.close()

    def prepare(self) -> Prepared:
        """Raises Fault."""
        recipe = self.recipe
        offers = find_offers(recipe.devices, recipe.host)
        self._data()
        self._note(*stage.check())
        pulled = self._pull() if recipe.source is not None else None
        variant = self._torch(offers)
        self._note(*torch_fit.check_devices(variant, offers))
        if pulled is not None:
            return self._build(pulled, offers, variant)
        if not Path(recipe.folder).is_dir():
            raise Refused("no-folder", "cannot join", f"there is no folder {recipe.folder}", "check where you stand")
        program = entry.resolve(recipe.words, recipe.folder)
        torch_fit.check_python(variant, program)
        return Prepared(program, recipe.words.script, recipe.folder, recipe.args, offers, variant=variant)

    def _data(self) -> None:
        recipe = self.recipe
        if recipe.data_path is None:
            return
        if recipe.data_source is not None:
            if self._mount is None:
                made = (recipe.data_source, recipe.data_path, recipe.identity, recipe.ssh_options)
                self._mount = DataMount(*made)
            self._note(*self._mount.ready())
        else:
            data_mount.check_root(recipe.data_path)

    def _pull(self) -> Pulled:
        assert self.recipe.source is not None
        self._note(f"pulling {pulled_run.shown(self.recipe.source.origin)}")
        pulled = pulled_run.fetch(self.recipe)
        self._note(*(f"{note} (run {pulled.run[:8]})" for note in pulled.notes))
        return pulled

    def _torch(self, offers: list[DeviceOffer]) -> Variant | None:
        """The variant that is asked for, fetched when it is not here, else the active one."""
        project = Path(self.recipe.folder)
        if self.recipe.libtorch is None:
            return libtorch.active(project)
        return torch_choice.acquire(self.recipe.libtorch, project, offers, self.say)

    def _build(self, pulled: Pulled, offers: list[DeviceOffer], variant: Variant | None) -> Prepared:
        new = not pulled.run or pulled.run != self._built
        built = pulled_run.build(self.recipe, pulled, variant, quiet=not new)
        self._built = pulled.run
        if new and pulled.run:
            self.say(f"run {pulled.run[:8]} is here and built: {Path(built.bin).name}")
        torch_fit.check_python(variant, built.program)
        args = (built.args or None) if pulled.published else self.recipe.args
        script = built.bin if built.python else ""
        return Prepared(built.program, script, built.cwd, args, offers, pulled.run, variant)

    def _note(self, *notes: str) -> None:
        for note in notes:
            if note not in self._noted:
                self._noted.add(note)
                self.say(f"note: {note}")
