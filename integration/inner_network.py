"""A box behind a user-mode network, as rootless containers and WSL have: it dials out, nobody dials in.

`hide` takes a lab's host off the bridge and gives it an address of its own; what it dials at the controller's address
is carried there by another host, whose address the controller sees.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from integration.cluster import PORT, Cluster
from tools.lab.host import sh

INNER = "172.17.0.2"
# A door opened in one network, then handed to a program in another: argv is address, port and that program.
DOOR = """
import os, socket, sys
door = socket.create_server((sys.argv[1], int(sys.argv[2])))
door.set_inheritable(True)
os.execvp(sys.argv[3], [*sys.argv[3:], str(door.fileno())])
"""


def hide(cluster: Cluster, inner: str, outer: str, controller: str) -> None:
    """Put `inner` behind `outer`; from then on `inner` reaches `controller`:1337 and nothing else."""
    lab = cluster.lab
    lab.cut(inner)
    net = ["ip", "-n", lab.hosts[inner].namespace]
    sh(*net, "addr", "flush", "dev", "eth0")
    sh(*net, "addr", "add", f"{INNER}/16", "dev", "eth0")
    sh(*net, "addr", "add", f"{controller}/32", "dev", "lo")
    sh(*net, "route", "replace", "local", f"{controller}/32", "dev", "lo", "src", INNER, "table", "local")
    carry = lab.hosts[outer].command(sys.executable, "-m", "integration.inner_network", controller, cwd=_root())
    process = lab.popen(inner, sys.executable, "-c", DOOR, controller, PORT, *carry, stdout=-1)
    assert process.stdout and process.stdout.readline() == "up\n"
    process.stdout.close()
    process.returncode = 0  # it ends with the lab


def _root() -> Path:
    return Path(__file__).resolve().parents[1]


def main(controller: str, door: str) -> None:
    """Carry every connection at the listening descriptor `door` to `controller`."""
    from integration.proxy import Proxy

    proxy = Proxy(PORT, host=controller, door=socket.socket(fileno=int(door)))
    print("up", flush=True)
    proxy.join()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
