"""A command of the project: what it runs and with what, and finding one by the words typed."""

from __future__ import annotations

from flodl_cli.node import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from flodl_wire.faults import Fault


class Command:
    """One entry of `commands:`. `cluster`, `mode` and `env` come down from the entries around it; the inner wins.

    An entry with `path:` is read from the manifest in that folder only when `open` is called, so that a mistake over
    there stops nobody who wants another command.
    """

    __slots__ = (
        "append",
        "build",
        "cluster",
        "commands",
        "description",
        "docker",
        "enter",
        "entry",
        "env",
        "flaw",
        "folder",
        "mode",
        "name",
        "node",
        "options",
        "run",
        "way",
    )

    def __init__(self, name: str, node: Node, folder: str) -> None:
        self.name = name  # as typed after `fdl`, e.g. "bench quick"
        self.node = node
        self.folder = folder  # absolute; the command runs there
        self.description = ""
        self.run: str | None = None
        self.entry = False  # `run` came from `entry:`: commands below it that say nothing else are presets of it
        self.options: dict[str, Node] = {}  # of an entry or a preset; they become flags
        self.append: list[str] = []
        self.docker: str | None = None  # compose service
        self.build: str | None = None
        self.cluster = False
        self.mode: str | None = None
        self.env: dict[str, str] = {}
        self.commands: dict[str, Command] = {}
        self.way: tuple[str, ...] = ()  # folders entered so far, to notice a circle
        self.enter: Callable[[], None] | None = None  # reads the manifest of `path:`; None when there is none to read
        self.flaw: Fault | None = None

    def open(self) -> None:
        """Read what lies in another folder. Raises Refused for what is wrong there, each time it is asked."""
        from flodl_wire.faults import Fault

        if self.flaw is not None:
            raise self.flaw
        if self.enter is not None:
            enter, self.enter = self.enter, None
            try:
                enter()
            except Fault as fault:
                self.flaw = fault
                raise

    def sound(self) -> bool:
        """False when its folder's manifest cannot be used; `flaw` says why."""
        from flodl_wire.faults import Fault

        try:
            self.open()
        except Fault:
            return False
        return True


def find(commands: dict[str, Command], words: list[str]) -> tuple[Command | None, list[str]]:
    """The command that `words` begin with, as deep as names go, and the words left over for it.

    Raises Refused when the manifest of a folder on the way cannot be used.
    """
    found: Command | None = None
    rest = words
    while rest and rest[0] in commands:
        found, rest = commands[rest[0]], rest[1:]
        found.open()
        commands = found.commands
    return found, rest


def everyone(commands: dict[str, Command]) -> list[Command]:
    """Every command, those below another behind it; what lies in a folder that cannot be used is left out."""
    found: list[Command] = []
    for command in commands.values():
        found.append(command)
        if command.sound():
            found += everyone(command.commands)
    return found


def names(commands: dict[str, Command]) -> list[str]:
    """Full names of every command, nested ones included."""
    return [command.name for command in everyone(commands)]
