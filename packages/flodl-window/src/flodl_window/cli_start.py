"""``flodl-window start``: fire the start switch of a run that is held. Hot, like cli_status.py."""

from __future__ import annotations

import sys

from flodl_window.asking import candidates, controller, fetch, plain, request
from flodl_wire import address, exits, outlets
from flodl_wire.faults import Broken, Refused, Transient, printable, usage

HELP = """usage: flodl-window start [--addr HOST[:PORT]] [--token HEX] [--json]

Fire the start switch of a run that is held (controller.join.start: manual or hybrid):
the world forms with the ranks that are in. A start that cannot be is refused with the
reason and never queued.

options:
  --addr HOST[:PORT]  the controller (port 1337 unless said); without it the cluster's
                      own controller, then this box
  --token HEX         the run's token, needed from another box; without it the project's
                      controller.join.token. It is not sent: a proof of it is
  --json              the controller's answer as one JSON document
  -h, --help          this text

Exit codes: 0 armed, 1 refused or nobody answered, 2 usage.
"""


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    values: dict[str, str] = {}
    as_json = False
    while words:
        word, equals, value = words.pop(0).partition("=")
        if word in ("-h", "--help"):
            sys.stdout.write(HELP)
            return exits.DONE
        if word == "--json" and not equals:
            as_json = True
        elif word in ("--addr", "--token"):
            if not equals and not words:
                raise usage(f"cannot use {word!r}", "its value must follow", "flodl-window start --help says more")
            values[word] = value if equals else words.pop(0)
        else:
            raise usage(f"cannot use {word!r}", "it is no option of start", "flodl-window start --help says more")
    token = _token(values.get("--token"))
    status, body = fire(candidates(values.get("--addr")), token)
    return report(status, body, as_json)


def fire(where: list[address.Address], token: str | None) -> tuple[int, bytes]:
    """Ask the first controller that answers; its HTTP status and document. Raises Transient when nobody does."""
    import json

    place, body = fetch(where)
    try:
        instance = str(json.loads(body)["instance"])
    except (ValueError, KeyError, TypeError):
        raise Broken("bad-state", f"cannot fire the start at {place}", "no flodl controller answers there") from None
    headers = ["Content-Length: 0"]
    if token is not None:
        from flodl_window import start_proof

        headers.append(f"Authorization: {start_proof.SCHEME} {start_proof.proof(token, instance)}")
    try:
        return request(address.parse(place, "the address"), "POST /start", *headers)
    except (OSError, EOFError) as err:
        raise Transient(
            "no-answer", f"cannot tell whether the start was fired at {place}", plain(err), "fdl status shows it"
        ) from None


def report(status: int, body: bytes, as_json: bool) -> int:
    """The controller's answer, as it said it."""
    import json

    try:
        answer = json.loads(body)
        assert isinstance(answer, dict)
    except (ValueError, AssertionError):
        raise Broken("bad-answer", "cannot read the controller's answer", f"HTTP {status}, and no document") from None
    outlets.work_is_done()
    if as_json:
        sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
    if status != 200:
        refusal = printable(str(answer.get("error", f"HTTP {status}")))
        if not as_json:
            print(refusal, file=sys.stderr)
        return exits.NOT_DONE
    if not as_json:
        ranks = answer.get("joined_ranks", "?")
        print(f"start armed: the world forms with the {ranks} ranks that are in (fdl status shows it)")
    return exits.DONE


def _token(given: str | None) -> str | None:
    """What was typed, else the project's own. Raises Refused (without the value) for one that cannot be."""
    where = "--token"
    if given is None:
        join = (controller() or {}).get("join")
        given = join.get("token") if isinstance(join, dict) else None
        where = "controller.join.token"
    if given is None:
        return None
    text = str(given)
    if len(text) != 32 or any(ch not in "0123456789abcdef" for ch in text):
        fault = usage if where == "--token" else lambda *words: Refused("bad-token", *words)
        raise fault(f"cannot use {where}", "it is not 32 lowercase hex digits", "copy it whole, without spaces")
    return text
