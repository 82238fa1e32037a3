"""The rendezvous store of mode torch, as a process of its own: the only one of flodl's own that loads torch.

    python -m flodl_planes.hub.store_server

Prints its port as one line of JSON, {"port": 43210}, then serves on loopback until its stdin ends. Where torch cannot
be loaded it prints {"missing": why} instead, and ends.
"""

from __future__ import annotations

import json
import socket
import sys
from datetime import timedelta


def main() -> int:
    try:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]  # it is defined in C
    except ImportError as err:
        print(json.dumps({"missing": str(err)}), flush=True)
        return 1

    # TCPStore by itself listens on every address whatever host it is given; with a socket of ours, on ours alone.
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    port = listener.getsockname()[1]
    store = TCPStore(
        "127.0.0.1",
        port,
        is_master=True,
        timeout=timedelta(seconds=30),
        wait_for_workers=False,
        master_listen_fd=listener.detach(),  # the store closes it
    )
    print(json.dumps({"port": port}), flush=True)
    try:
        sys.stdin.buffer.read()
    except KeyboardInterrupt:
        pass  # Ctrl-C went to the whole terminal; whoever started us ends us when it is done
    del store
    return 0


if __name__ == "__main__":
    sys.exit(main())
