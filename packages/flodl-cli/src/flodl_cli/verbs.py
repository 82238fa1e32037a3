"""Our own verbs: which installed tool answers each. `fdl` never does their work, it execs them."""

from __future__ import annotations


class Verb:
    """`argv` is put in front of what the user typed; `package` is what `pip install` wants when the tool is missing."""

    __slots__ = ("argv", "line", "package")

    def __init__(self, package: str, argv: tuple[str, ...], line: str) -> None:
        self.package = package
        self.argv = argv
        self.line = line


VERBS = {
    "status": Verb("flodl-window", ("flodl-window", "status"), "show a run: phase, who is in, countdowns, progress"),
    "start": Verb("flodl-window", ("flodl-window", "start"), "fire the start switch of a run that is held"),
    "why": Verb("flodl-window", ("flodl-window", "why"), "what broke first in a run, and what to try"),
    "runs": Verb("flodl-window", ("flodl-window", "runs"), "what the project has run, newest first"),
    "report": Verb("flodl-window", ("flodl-window", "report"), "write a run's report: one file for a browser"),
    "probe": Verb("flodl-probe", ("flodl-probe",), "say whether a box, or every host, is fit to train"),
    "join": Verb("flodl-agent", ("flodl-agent", "join"), "offer this box to a run that is waiting"),
    "libtorch": Verb("flodl-agent", ("flodl-agent", "libtorch"), "fetch a torch build and choose the active one"),
    "publish": Verb("flodl-publish", ("flodl-publish", "publish"), "put a run where a fleet can pull it"),
    "nccl": Verb("flodl-ncclbuild", ("flodl-ncclbuild",), "build, list and check a libnccl for mismatched hosts"),
}

BUILTINS = {
    "help": "show this, or what one command is",
    "init": "write a project that trains at once",
    "config": "`fdl config show`: the merged config and the file each value came from",
    "join-config": "set up a farm on its controller: a guarded door, keys, and what workers need to walk in",
    "completion": "`fdl completion bash`: what makes Tab know commands, environments and options",
    "version": "show the versions of all flodl packages installed here",
}

# What the Tab key offers behind a word of ours.
WORDS_BEHIND = {"nccl": ("build", "list", "check"), "config": ("show",), "completion": ("bash",)}
