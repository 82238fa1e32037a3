"""`fdl completion bash`: what makes the Tab key know the commands of the project one stands in."""

from __future__ import annotations

import shlex

from flodl_cli.command_line import CommandLine
from flodl_wire import exits
from flodl_wire.faults import usage

HELP = """\
usage: fdl completion bash

Prints the completion for bash: verbs, environments, options and the commands of the project one
stands in, read anew at each press of Tab. In ~/.bashrc:

  source <(fdl completion bash)
"""

# `@`, `=` and `:` part words for bash, so the whole line is handed over and the part that stands already is cut off.
BASH = """\
_fdl() {
    local IFS=$'\\n'
    COMPREPLY=($(fdl completion words "$COMP_WORDBREAKS" "$COMP_POINT" "$COMP_LINE" 2>/dev/null))
}
complete -o bashdefault -o default -F _fdl fdl
"""


def main(line: CommandLine) -> int:
    words = line.rest
    if any(word in ("-h", "--help") for word in words[:1]):
        print(HELP, end="")
        return exits.DONE
    if words == ["bash"]:
        print(BASH, end="")
        return exits.DONE
    if len(words) == 4 and words[0] == "words" and words[2].isdecimal():
        for word in answer(words[1], words[3][: int(words[2])]):
            print(word)
        return exits.DONE
    raise usage(f"cannot do `fdl completion {shlex.join(words)}`", "it only knows `bash`", "fdl completion bash")


def answer(breaks: str, line: str) -> list[str]:
    """What the shell may put in place of the last part of `line`, which ends at the cursor. `breaks`: the signs that
    part words for it.
    """
    from flodl_cli.completion import candidates

    before, current = _split(line)
    standing = max((current.rfind(sign) for sign in breaks if not sign.isspace() and sign not in "\"'"), default=-1) + 1
    return [word[standing:] for word in candidates(before[1:], current)]


def _split(line: str) -> tuple[list[str], str]:
    """The whole words of `line`, and the one that is being typed."""
    for closing in ("", "'", '"'):  # a quote may still be open
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        begun = closing or (line and not line[-1].isspace())
        return (words[:-1], words[-1]) if begun and words else (words, "")
    return [], ""
