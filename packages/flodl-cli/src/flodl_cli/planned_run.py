"""A command as it is about to run: what was decided of it, and what is laid around it before it does."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from flodl_cli.prebuild import Prebuild
    from flodl_wire.specs import LaunchConfig


class Run:
    """What is about to happen: `argv` in `folder`, `env` laid over the environment (None = unset), notes for stderr,
    and what is built for other hosts before. `resumes`: the program itself looks in `folder` for what it goes on from.
    """

    __slots__ = ("argv", "config", "env", "folder", "notes", "prebuild", "resumes")

    def __init__(self, argv: list[str], folder: str) -> None:
        self.argv = argv
        self.folder = folder
        self.env: dict[str, str | None] = {}
        self.notes: list[str] = []
        self.resumes = False
        self.prebuild: Prebuild | None = None
        self.config: LaunchConfig | None = None  # of a cluster command, as its environment carries it
