"""The one way this project says that something went wrong.

A fault is written for the person who reads it at two in the morning: *what* could not be done, *why*, and the *fix*.
Code is a short stable word for scripts. No third-party import: the hot commands load this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from flodl_wire import exits


class Fault(Exception):
    """Something the user can understand and mend.

    ``str(fault)`` is one sentence, "what: why"; ``render()`` adds the fix on a line of its own.
    """

    family = "fault"

    def __init__(self, code: str, what: str, why: str = "", fix: str = "", *, exit_code: int = exits.NOT_DONE) -> None:
        self.code = code
        self.what = what
        self.why = why
        self.fix = fix
        self.exit_code = exit_code
        super().__init__(f"{what}: {why}" if why else what)

    def render(self) -> str:
        """The text for a terminal: the sentence, then the fix when there is one."""
        return f"{self}\nfix: {self.fix}" if self.fix else str(self)

    def as_dict(self) -> dict[str, str]:
        """The same for ``--json`` and for a refusal on the wire."""
        return {"family": self.family, "code": self.code, "what": self.what, "why": self.why, "fix": self.fix}


class Refused(Fault):
    """We will not do this as asked: bad input, a contradiction, a door that stays shut. Asking again changes nothing.
    """

    family = "refused"


class Transient(Fault):
    """It did not work now and may work later: nothing listens yet, a link broke, a fetch failed."""

    family = "transient"


class Broken(Fault):
    """Something that should hold does not: a peer broke the protocol, a child died, a disk is full."""

    family = "broken"


FAMILIES: dict[str, type[Fault]] = {kind.family: kind for kind in (Fault, Refused, Transient, Broken)}


def usage(what: str, why: str = "", fix: str = "") -> Refused:
    """A command line that cannot be meant: exit 2."""
    return Refused("usage", what, why, fix, exit_code=exits.USAGE)


def from_dict(data: dict[str, str]) -> Fault:
    """Rebuild a fault that arrived as JSON; an unknown family is a plain `Fault`."""
    kind = FAMILIES.get(data.get("family", ""), Fault)
    return kind(data.get("code", "unknown"), data.get("what", "failed"), data.get("why", ""), data.get("fix", ""))


def guarded(program: str, main: Callable[[], int], *, as_json: bool = False) -> int:
    """Run an executable's ``main`` so that nothing a user can cause ends in a traceback.

    A fault goes to stderr as ``program: what: why`` with its fix (and, under ``as_json``, to stdout as one JSON
    document); Ctrl-C is 130; a reader that went away (``| head``) is not an error worth words.
    """
    import os
    import sys

    try:
        code = main()
        sys.stdout.flush()
        return code
    except Fault as fault:
        if as_json:
            print(json.dumps({"error": fault.as_dict()}))
        print(f"{program}: {fault.render()}", file=sys.stderr)
        return fault.exit_code
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the interpreter flushes stdout once more at exit
        return exits.NOT_DONE
