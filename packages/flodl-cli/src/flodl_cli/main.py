"""The executable `fdl`: finds the project, resolves its config, hands over to the tool.

What a word can be, in this order: a builtin, one of our verbs, a command of the project, another tool (`fdl-<word>` on
PATH, or the entry-point group `fdl.verbs`). This file imports next to nothing: `fdl status --addr …` should cost one
more Python start and no more.
"""

import sys

TYPE_CHECKING = False  # typing's own constant, without its import
if TYPE_CHECKING:
    from flodl_cli.command_line import CommandLine


def main(argv: list[str] | None = None) -> int:
    try:  # a Ctrl-C while this is imported has no guard yet
        words = sys.argv[1:] if argv is None else argv
        if words and words[0] in ("status", "start") and _names_an_address(words[1:]):
            _hand_over_at_once(words)
        from flodl_wire.faults import guarded

        return guarded("fdl", lambda: run(words), as_json=_wants_json(words))
    except KeyboardInterrupt:
        return 130  # exits.INTERRUPTED


def _hand_over_at_once(words: list[str]) -> None:
    """Become the tool where it is installed: no config is needed."""
    from flodl_cli import sibling
    from flodl_cli.verbs import VERBS

    verb = VERBS[words[0]]
    path = sibling.find(verb.argv[0])
    if path is not None:
        sibling.hand_over([path, *verb.argv[1:], *words[1:]])


def run(words: list[str]) -> int:
    """Everything `fdl` does, for `guarded` to watch."""
    from flodl_cli import command_line
    from flodl_cli.verbs import BUILTINS, VERBS

    _print_anything()
    line = command_line.parse(words)
    if line.command is None:
        line.command = "help"
    if line.command == "--version":
        from flodl_cli.cli_version import show_own_version

        return show_own_version()
    if line.command in BUILTINS:
        return _builtin(line)
    if line.command in VERBS:
        from flodl_cli.verb_handover import hand_over_to_verb

        return hand_over_to_verb(line)
    from flodl_cli.project_command import run_project_command

    return run_project_command(line)


def _builtin(line: "CommandLine") -> int:
    if line.command == "help":
        from flodl_cli.cli_help import main as verb_main
    elif line.command == "init":
        from flodl_cli.cli_init import main as verb_main
    elif line.command == "config":
        from flodl_cli.cli_config import main as verb_main
    elif line.command == "completion":
        from flodl_cli.cli_completion import main as verb_main
    elif line.command == "join-config":
        from flodl_cli.join_config.cli import main as verb_main
    else:
        from flodl_cli.cli_version import main as verb_main
    return verb_main(line)


def _print_anything() -> None:
    """A description or a path may hold what the terminal's encoding lacks: show `?` then, and go on."""
    if sys.stdout.errors == "strict" or "utf" not in sys.stdout.encoding.lower():
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def _wants_json(words: list[str]) -> bool:
    """True for the builtins that print a JSON document: on failure too they print exactly one."""
    from flodl_cli import command_line
    from flodl_wire.faults import Fault

    try:
        line = command_line.parse(words)
    except Fault:
        return False
    return line.command in ("config", "join-config", "version") and "--json" in line.rest


def _names_an_address(words: list[str]) -> bool:
    """True when `--addr` says where the run is and nothing names an environment: no config is needed then."""
    import os

    if os.environ.get("FDL_ENV") or any(word.startswith("@") for word in words):
        return False
    return any(word == "--addr" or word.startswith("--addr=") for word in words)
