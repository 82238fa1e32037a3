"""``flodl-window status``: what a run is doing, asked of its port. Hot: no msgspec, asyncio, http.client, argparse."""

from __future__ import annotations

import os
import sys

from flodl_wire import address, environ, exits
from flodl_wire.faults import Broken, Refused, Transient, usage

TIMEOUT_S = 5.0  # to connect and to read (the reference's)
MAX_ANSWER = 64 * 1024 * 1024  # bytes of a state; a thousand hosts need half a megabyte

HELP = """usage: flodl-window status [--addr HOST[:PORT]] [--json]

What a run is doing: its phase and why, who is in with what, ranks and rates, countdowns.

options:
  --addr HOST[:PORT]  the controller (port 1337 unless said); without it the cluster's
                      own controller, then this box
  --json              the state as one JSON document, as the controller serves it
  -h, --help          this text

Exit codes: 0 the state was fetched, 1 nobody answered, 2 usage.
"""


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    addr, as_json = None, False
    while words:
        word = words.pop(0)
        if word in ("-h", "--help"):
            sys.stdout.write(HELP)
            return exits.DONE
        if word == "--json":
            as_json = True
        elif word == "--addr" and words:
            addr = words.pop(0)
        elif word.startswith("--addr="):
            addr = word.partition("=")[2]
        else:
            why = "an address must follow" if word == "--addr" else "it takes --addr HOST[:PORT] and --json"
            raise usage(f"cannot use {word!r}", why, "flodl-window status --help says more")
    where, body = fetch(candidates(addr))
    if as_json:
        sys.stdout.buffer.write(body if body.endswith(b"\n") else body + b"\n")
        return exits.DONE
    import json

    from flodl_window.status_text import render

    try:
        state = json.loads(body)
        text = render(state, where) if isinstance(state, dict) else ""
    except (ValueError, TypeError, AttributeError):
        text = ""
    if not text:
        raise Broken("bad-state", f"cannot read the state at {where}", "it is not what a flodl controller serves")
    print(text)
    return exits.DONE


def candidates(addr: str | None) -> list[address.Address]:
    """Where to ask, in order: ``--addr`` alone; else the config's controller and then its port on this box; else this
    box.
    """
    if addr is not None:
        try:
            return [address.parse(addr, "--addr")]
        except Refused as refused:
            refused.exit_code = exits.USAGE
            raise
    controller = _controller()
    if controller is None:
        print(f"flodl-window: no cluster here, asking 127.0.0.1:{address.DEFAULT_PORT}", file=sys.stderr)
        return [address.Address("127.0.0.1", address.DEFAULT_PORT)]
    port = int(str(controller.get("port", address.DEFAULT_PORT)))
    found = [address.Address(str(controller["host"]), port), address.Address("127.0.0.1", port)]
    return found[:1] if found[0] == found[1] else found


def _controller() -> dict[str, object] | None:
    """``cluster.controller`` as fdl handed it over; plain json, for speed."""
    for name, inner in ((environ.CONFIG_JSON, True), (environ.FULL_CLUSTER_JSON, False)):
        text = os.environ.get(name)
        if not text:
            continue
        import json

        try:
            document = json.loads(bytes.fromhex(text))
            cluster = document.get("cluster") if inner else document
            if cluster and cluster["controller"]["host"]:
                return dict(cluster["controller"])
        except (ValueError, KeyError, TypeError, AttributeError) as err:
            raise Broken("bad-blob", f"cannot read {name}", str(err), "it is written by fdl: unset it") from None
    return None


def fetch(where: list[address.Address]) -> tuple[str, bytes]:
    """The state's JSON from the first address that answers. Raises Transient naming what each of them did."""
    misses = []
    for place in where:
        try:
            return str(place), _get(place)
        except (OSError, EOFError) as err:
            misses.append(f"{place}: {_plain(err)}")
    raise Transient(
        "no-run",
        "no run answers",
        "; ".join(misses),
        "nothing listens there when no run is on; else check --addr and the port",
    )


def _get(place: address.Address) -> bytes:
    import socket

    with socket.create_connection((place.host, place.port), TIMEOUT_S) as sock:
        sock.settimeout(TIMEOUT_S)
        sock.sendall(f"GET /state.json HTTP/1.1\r\nHost: {place}\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while len(answer) < MAX_ANSWER:
            piece = sock.recv(1 << 18)
            if not piece:  # the controller closes behind its answer
                break
            answer += piece
    head, gap, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not gap or not head.startswith(b"HTTP/1.") or not status:
        raise EOFError("it does not speak HTTP: another program listens there")
    if status[0] != b"200":
        raise EOFError(f"it answered {status[0].decode('latin-1')}: {body[:200].decode('utf-8', 'replace').strip()}")
    if len(body) < _length(head):
        raise EOFError("the answer broke off")
    return body


def _length(head: bytes) -> int:
    """Content-Length, 0 when it is not said."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return 0


def _plain(err: Exception) -> str:
    """The three ways of not answering, in words."""
    if isinstance(err, ConnectionRefusedError):
        return "connection refused"
    if isinstance(err, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    return getattr(err, "strerror", None) or str(err)
