"""The one way this project says that something went wrong.

A fault is written for the person who reads it at two in the morning: *what* could not be done, *why*, and the *fix*.
Code is a short stable word for scripts. No third-party import: the hot commands load this module.
"""

from __future__ import annotations

from flodl_wire import exits

TYPE_CHECKING = False  # typing's own constant, without its import: this module is on the path of the hot commands
if TYPE_CHECKING:
    from collections.abc import Callable


def printable(text: str) -> str:
    """`text` safe to print on a terminal, whoever wrote it: control and other unprintable characters become escapes.

    Line ends and tabs stay. Lone surrogates (undecodable bytes of a name) become ``\\udcff``, which every encoding can
    print.
    """
    if text.isprintable():
        return text
    return "".join(
        ch if ch.isprintable() or ch in "\n\t" else ch.encode("unicode_escape").decode("ascii") for ch in text
    )


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
        """The text for a terminal: the sentence, then the fix when there is one. Escaped: some of it may come from
        afar.
        """
        return printable(f"{self}\nfix: {self.fix}" if self.fix else str(self))

    def as_dict(self) -> dict[str, str]:
        """The same for ``--json`` and for a refusal on the wire."""
        return {"family": self.family, "code": self.code, "what": self.what, "why": self.why, "fix": self.fix}


class Refused(Fault):
    """We will not do this as asked: bad input, a contradiction, a shut door. Asking again changes nothing."""

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
    document); Ctrl-C is 130; a reader that went away (``| head``) is no error, nor is a stream that the caller has
    closed (``>&-``). An output that could not be written is one line on stderr; the exit code is `exits.NOT_DONE` then,
    unless the command's work was something else and is done (`outlets.work_is_done`).
    """
    import sys

    from flodl_wire import outlets

    _open_what_is_closed()
    streams = outlets.install()
    try:
        try:
            code = main()
        except SystemExit as leave:  # argparse, behind its help or its usage
            if not isinstance(leave.code, int):
                raise
            code = leave.code
        sys.stdout.flush()
        return _judge_output(program, code, streams.lost, streams.work_done)
    except Fault as fault:
        return _report(program, fault, as_json)
    except KeyboardInterrupt:
        return exits.INTERRUPTED
    except OSError as err:  # a full disk, a folder that may not be read: the system's own words say it best
        where = f"{err.filename}: " if err.filename else ""
        return _report(program, Broken("system", "cannot go on", where + (err.strerror or str(err))), as_json)
    finally:
        streams.remove()


def _judge_output(program: str, code: int, lost: OSError | None, work_done: bool) -> int:
    """The exit code of a command that came to its end with `code`, whatever became of what it printed."""
    import sys

    if lost is None or isinstance(lost, BrokenPipeError):
        return code
    why = lost.strerror or str(lost)
    if work_done and code == exits.DONE:
        print(f"{program}: its work is done, but its output could not be written: {why}", file=sys.stderr)
        return code
    print(f"{program}: cannot write the output: {why}", file=sys.stderr)
    return code or exits.NOT_DONE


def _report(program: str, fault: Fault, as_json: bool) -> int:
    import sys

    if as_json:
        import json

        print(json.dumps({"error": fault.as_dict()}))
    sys.stdout.flush()  # ahead of stderr, where both go to one terminal
    print(f"{program}: {fault.render()}", file=sys.stderr, flush=True)
    return fault.exit_code


def _open_what_is_closed() -> None:
    """A standard stream that the caller closed leads nowhere. Left closed, its number would go to the next socket or
    pipe, and our children would write their words into that.
    """
    import os
    import sys

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                nowhere = os.open(os.devnull, os.O_RDWR)  # the lowest free number, so mostly this very one
                os.dup2(nowhere, number)
                if nowhere != number:
                    os.close(nowhere)
                os.set_inheritable(number, True)
            setattr(sys, name, open(number, "w" if number else "r", encoding="utf-8", closefd=False))  # noqa: SIM115
