"""``flodl-planes relay``: one host's relay, started by its agent with a spec in the environment."""

from __future__ import annotations

import argparse
import os

from flodl_wire import blob, environ
from flodl_wire.faults import Refused
from flodl_wire.specs import RelaySpec


def parser() -> argparse.ArgumentParser:
    """No options: whom to serve and where to dial comes in the environment, as the salt must not stand on a command
    line.
    """
    return argparse.ArgumentParser(
        prog="flodl-planes relay",
        description="Carries one host's averages and messages between its ranks and the hub. Started by flodl-agent.",
        epilog=f"{environ.RELAY_JSON} holds its spec. Exit codes: 0 its ranks have said goodbye, 75 the hub is lost, "
        "1 something else is.",
    )


def main(argv: list[str] | None = None) -> int:
    parser().parse_args(argv)
    text = os.environ.pop(environ.RELAY_JSON, None)
    if text is None:
        raise Refused(
            "no-spec",
            "cannot run as a relay",
            f"{environ.RELAY_JSON} is not set",
            "flodl-agent starts relays; there is nothing to run by hand",
        )
    spec = blob.decode(text, RelaySpec, environ.RELAY_JSON)
    from flodl_planes.relay.process import Relay  # numpy: only once the spec is known to be good

    return Relay(spec).run()
