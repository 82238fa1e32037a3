"""Asking a controller for its state: where it may be, one request, and what came. Hot, like cli_status.py."""

from __future__ import annotations

import os
import sys

from flodl_wire import address, environ, exits
from flodl_wire.faults import Broken, Refused, Transient

TIMEOUT_S = 5.0  # to connect and to read (the reference's)
MAX_ANSWER = 64 * 1024 * 1024  # bytes of a state; a thousand hosts need half a megabyte
NOBODY = "nothing listens there when no run is on; else check --addr and the port"
PHASES = ("waiting", "staging", "forming", "training", "done")


def shown(at: str, body: bytes) -> str:
    """A served state as text. Raises Broken for what is none."""
    import json

    from flodl_window.status_text import render

    try:
        state = json.loads(body)
        text = render(state, at) if isinstance(state, dict) else ""
    except (ValueError, TypeError, AttributeError):
        text = ""
    if not text:
        raise Broken("bad-state", f"cannot read the state at {at}", "it is not what a flodl controller serves")
    return text


def candidates(addr: str | None) -> list[address.Address]:
    """Where to ask, in order: ``--addr`` alone; else the config's controller and then its port on this box; else the
    port of this folder's last run, on this box.
    """
    if addr is not None:
        try:
            return [address.parse(addr, "--addr")]
        except Refused as refused:
            refused.exit_code = exits.USAGE
            raise
    found = controller()
    if found is None:
        place = address.Address("127.0.0.1", port_of_last_run() or address.DEFAULT_PORT)
        print(f"flodl-window: no cluster here, asking {place}", file=sys.stderr)
        return [place]
    port = int(str(found.get("port", address.DEFAULT_PORT)))
    places = [address.Address(str(found["host"]), port), address.Address("127.0.0.1", port)]
    return places[:1] if places[0] == places[1] else places


def last_run() -> dict[str, object]:
    """The state that this project's last run left in runs/latest; {} when there is none that can be read."""
    import json
    from pathlib import Path

    project = Path(os.environ.get(environ.RUN_DIR) or ".")
    if not os.environ.get(environ.RUN_DIR):
        try:
            project = Path(json.loads(bytes.fromhex(os.environ[environ.CONFIG_JSON]))["manifest"]).parent
        except (KeyError, TypeError, ValueError):
            pass  # no project, or none that says so: this folder
    try:
        state = json.loads((project / "runs" / "latest" / "state.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def port_of_last_run() -> int | None:
    """A run of one box takes another port where 1337 was taken."""
    port = last_run().get("port")
    return port if isinstance(port, int) and 0 < port < 65536 else None


def way_on(addr: str | None) -> str:
    """What to do when nobody answers: often the run is over, and its folder says how it went."""
    state = {} if addr is not None else last_run()
    if state.get("phase") in ("done", "failed"):
        return f"the last run here is over: {state.get('run')} is {state['phase']}: {state.get('why')}"
    return NOBODY


def controller() -> dict[str, object] | None:
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
            misses.append(f"{place}: {plain(err)}")
    raise Transient("no-run", "no run answers", "; ".join(misses), NOBODY)


def _get(place: address.Address) -> bytes:
    status, body = request(place, "GET /state.json")
    if status != 200:
        raise EOFError(f"it answered {status}: {body[:200].decode('utf-8', 'replace').strip()}")
    return body


def request(place: address.Address, line: str, *headers: str) -> tuple[int, bytes]:
    """One HTTP request of a method and path; status and body. Raises OSError, or EOFError with what came instead."""
    import socket

    with socket.create_connection((place.host, place.port), TIMEOUT_S) as sock:
        sock.settimeout(TIMEOUT_S)
        head_lines = [f"{line} HTTP/1.1", f"Host: {place}", *headers, "Connection: close", "", ""]
        sock.sendall("\r\n".join(head_lines).encode())
        answer = b""
        while len(answer) < MAX_ANSWER:
            piece = sock.recv(1 << 18)
            if not piece:  # the controller closes behind its answer
                break
            answer += piece
    head, gap, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[1:2]
    if not gap or not head.startswith(b"HTTP/1.") or not status or not status[0].isdigit():
        raise EOFError("it does not speak HTTP: another program listens there")
    if len(body) < _length(head):
        raise EOFError("the answer broke off")
    return int(status[0]), body


def _length(head: bytes) -> int:
    """Content-Length, 0 when it is not said."""
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length" and value.strip().isdigit():
            return int(value)
    return 0


def plain(err: Exception) -> str:
    """The three ways of not answering, in words."""
    if isinstance(err, ConnectionRefusedError):
        return "connection refused"
    if isinstance(err, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    return getattr(err, "strerror", None) or str(err)
