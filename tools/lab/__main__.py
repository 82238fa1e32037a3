"""Several hosts on this machine, by hand. The hosts stay until `down`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.lab import Lab, Link, missing

FOLDER = Path(tempfile.gettempdir(), "flodl-lab")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m tools.lab", description=__doc__)
    p.add_argument("--folder", type=Path, default=FOLDER, help="where its homes and keys live (default: %(default)s)")
    verbs = p.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up", help="make the hosts, each with an sshd on port 22")
    up.add_argument("hosts", nargs="+", metavar="HOST")
    up.add_argument("--rate", help="of every link, as tc writes it: 50mbit")
    up.add_argument("--delay", type=float, default=0.0, metavar="SECONDS", help="of every link, each way")
    up.add_argument("--net", default="10.77.0", help="first three numbers of the addresses (default: %(default)s)")
    run = verbs.add_parser("run", help="run a command on a host")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    sshd = verbs.add_parser("sshd", help="one more sshd on a host")
    sshd.add_argument("host")
    sshd.add_argument("--port", type=int, required=True)
    sshd.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    for verb, text in (("cut", "pull a host's cable"), ("heal", "plug it in again")):
        verbs.add_parser(verb, help=text).add_argument("host")
    verbs.add_parser("down", help="take everything away")
    return p


def main(argv: list[str] | None = None) -> int:
    given = parser().parse_args(argv)
    if why := missing():
        print(f"lab: {why}", file=sys.stderr)
        return 1
    if given.verb == "up":
        if (given.folder / "lab.json").exists():
            Lab.attach(given.folder).down()
        lab = Lab({name: Link(given.rate, given.delay) for name in given.hosts}, given.net, given.folder)
        lab.up()
        print("  ".join(f"{host.name} {host.address}" for host in lab.hosts.values()))
        return 0
    if not (given.folder / "lab.json").exists():
        print("lab: no lab is up; `python -m tools.lab up desk tower` makes one", file=sys.stderr)
        return 1
    lab = Lab.attach(given.folder)
    if given.verb == "run":
        host = lab.hosts[given.host]
        words = given.command[1:] if given.command[:1] == ["--"] else given.command
        return subprocess.run(host.command(*words), env=host.environment(), check=False).returncode
    if given.verb == "sshd":
        lab.sshd(given.host, given.port, *given.option)
    elif given.verb == "cut":
        lab.cut(given.host)
    elif given.verb == "heal":
        lab.heal(given.host)
    else:
        lab.down()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
