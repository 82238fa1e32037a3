"""Trying a door with the farm's own key: what must be shut, what must be open, and what ssh's words say of each.

The command lines and the judging are pure; `trying.py` runs them. Nothing of the user's own ssh takes part: no config,
no agent, no shared connection, or it would be their door that was tried.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flodl_cli.join_config.farm import Farm

# Said by arithmetic, so that a banner or an echo of the command is not taken for a shell.
SHELL_WORDS = "echo flodl-$((40+2))-shell; pwd"
_SHELL_MARK = "flodl-42-shell"
REACHED = "flodl-reached"  # what our own Unix socket says to whoever gets through
FORBIDDEN = ("administratively prohibited", "unknown channel type")
UNREACHABLE = (
    r"Connection refused|timed out|Could not resolve|No route to host|unreachable|Connection closed by|Connection reset"
)


@dataclass(frozen=True)
class Said:
    """How a command ended. `code` None: it had to be ended, because it went on."""

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def both(self) -> str:
        return f"{self.out}\n{self.err}"


@dataclass(frozen=True)
class Tried:
    """`state`: held, OPEN (what should be shut), SHUT (what should be open), note, skipped."""

    name: str
    state: str
    text: str
    fix: str = ""


@dataclass(frozen=True)
class Probe:
    """One command and what its end means. `stdin` is given to it; it may take `seconds` before it is ended.

    `visit`: a port of loopback on which it forwards; what comes back to a visitor there is added to its output.
    """

    name: str
    argv: list[str]
    judge: Callable[[Said], Tried]
    stdin: str = ""
    seconds: float = 15.0
    needs: str = "ssh"
    visit: int = 0


@dataclass(frozen=True)
class Door:
    """`host` and `port` are dialled: the controller's, or loopback where the former does not lead here."""

    farm: Farm
    key: str  # path of the private key
    known_hosts: str  # a scratch file
    unix_socket: str  # one that answers REACHED: refused and not there look the same from outside
    host: str
    port: int
    listing: list[str] | None = None  # what the served folder holds, when it is this box's


def ssh_options(door: Door) -> list[str]:
    words = ["-F", "none", "-i", door.key]
    for option in (
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "BatchMode=yes",
        "PreferredAuthentications=publickey",
        "ControlMaster=no",
        "ControlPath=none",
        "StrictHostKeyChecking=accept-new",
        f"UserKnownHostsFile={door.known_hosts}",
        "GlobalKnownHostsFile=/dev/null",
        "ConnectTimeout=8",
        "LogLevel=INFO",
    ):
        words += ["-o", option]
    return words


def ssh(door: Door, *words: str) -> list[str]:
    at = ["-p", str(door.port), "-l", door.farm.controller.user]
    return ["ssh", *ssh_options(door), *at, *words]


def rsync(door: Door, *words: str) -> list[str]:
    shell = " ".join(["ssh", *(_word(each) for each in ssh_options(door)), "-p", str(door.port)])
    return ["rsync", "-e", shell, "--timeout=10", *words]


def _word(text: str) -> str:
    """For rsync's -e, which knows double quotes and no backslashes."""
    return f'"{text}"' if " " in text else text


def remote(door: Door, path: str) -> str:
    host = f"[{door.host}]" if ":" in door.host else door.host
    return f"{door.farm.controller.user}@{host}:{path}"


def sftp(door: Door) -> list[str]:
    host = f"[{door.host}]" if ":" in door.host else door.host
    return ["sftp", "-q", *ssh_options(door), "-P", str(door.port), "-b", "-", f"{door.farm.controller.user}@{host}"]


def probes(door: Door, free_port: int) -> list[Probe]:
    """What is tried, in order; the first says whether the key is let in at all. `free_port`: of our own loopback."""
    farm = door.farm
    run = f"127.0.0.1:{farm.run_port}"
    forward = ["-N", "-o", "ExitOnForwardFailure=yes"]
    # where anybody may write, and of a name that is not there
    folder = f"/tmp/{os.path.basename(os.path.dirname(door.known_hosts))}-w"
    found = [
        Probe("forward", ssh(door, "-W", run, door.host), _forward(farm), stdin=_HEAD),
        Probe("shell", ssh(door, "-T", door.host, SHELL_WORDS), _shell(farm)),
        Probe("terminal", ssh(door, "-tt", door.host), _terminal(farm), stdin=f"{SHELL_WORDS}\nexit\n"),
        # an sshd that is reached this way says its banner and then waits for ours
        Probe(
            "another port",
            ssh(door, "-W", f"127.0.0.1:{door.port}", door.host),
            _other_port(farm, door.port),
            seconds=5.0,
        ),
        # with a session beside it, whose end ends it
        Probe(
            "listening",
            ssh(door, "-T", "-o", "ExitOnForwardFailure=yes", "-R", "127.0.0.1:0:127.0.0.1:9", door.host, "exit"),
            _listening(farm),
        ),
        Probe(
            "unix socket",
            ssh(door, *forward, "-L", f"127.0.0.1:{free_port}:{door.unix_socket}", door.host),
            _unix_socket(farm),
            seconds=8.0,
            visit=free_port,
        ),
        Probe(
            "write by rsync",
            rsync(door, "--dry-run", "-v", door.known_hosts, remote(door, "/flodl-door-test")),
            _rsync_write(farm),
            needs="rsync",
        ),
        Probe("write by sftp", sftp(door), _sftp_write(farm), stdin=f"mkdir {folder}\nrmdir {folder}\n", needs="sftp"),
    ]
    if farm.door == "b":
        tree = rsync(door, "--list-only", remote(door, "/"))
        above = rsync(door, "--list-only", remote(door, "/../"))
        found.append(Probe("tree", tree, _tree(farm, door.listing), needs="rsync"))
        found.append(Probe("above the tree", above, _above(farm, door.listing), needs="rsync"))
    elif farm.door == "a":
        found.append(Probe("data", sftp(door), _data(farm), stdin=f"ls -1 {_sftp_quoted(farm.data)}\n", needs="sftp"))
        found.append(Probe("beyond the data", sftp(door), _beyond(farm), stdin="ls -1 /etc/passwd\n", needs="sftp"))
    return found


_HEAD = "HEAD /state.json HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"


def _sftp_quoted(path: str) -> str:
    return '"' + path.replace("\\", "\\\\").replace('"', '\\"') + '"'


@dataclass(frozen=True)
class NotIn(Tried):
    """The key is not taken, so nothing else can be tried. `code`: denied, unreachable, host-key."""

    code: str = ""


def let_in(said: Said, farm: Farm) -> NotIn | None:
    """Why nothing further need be tried; None when the key is taken."""
    where = farm.controller
    if "Permission denied" in said.err or "Too many authentication failures" in said.err:
        text = f"{where.user} is not let in with the farm's key"
        return NotIn("key", "SHUT", text, f"fdl join-config {farm.label} --install-key", "denied")
    if said.code == 255 and re.search(UNREACHABLE, _without_channels(said.err)):
        text = f"no ssh daemon answers at {where}: {_last(said.err)}"
        return NotIn("key", "SHUT", text, f"the steps of .fdl/{farm.label}/install-notes.md open it", "unreachable")
    if "HOST IDENTIFICATION HAS CHANGED" in said.err or "Host key verification failed" in said.err:
        return NotIn("key", "SHUT", f"two host keys answer at {where}", "look who listens there", "host-key")
    return None


def _without_channels(text: str) -> str:
    """ssh's words on itself, not on what the far end could reach."""
    return "\n".join(line for line in text.splitlines() if "open failed" not in line and "stdio forwarding" not in line)


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it said nothing"


def _key_fix(farm: Farm) -> str:
    return f"the key's line must be the farm's own: fdl join-config {farm.label} --install-key"


def _forward(farm: Farm) -> Callable[[Said], Tried]:
    run = f"127.0.0.1:{farm.run_port}"

    def judge(said: Said) -> Tried:
        if said.out.startswith("HTTP/"):
            return Tried("forward", "held", f"{run} is reached, and a run's window answers there")
        if any(word in said.err for word in FORBIDDEN):
            fix = f'permitopen="{run}" in the key\'s line, `PermitOpen {run}` and AllowTcpForwarding in sshd_config'
            return Tried("forward", "SHUT", f"a forward to {run} is forbidden", fix)
        if "open failed" in said.err or said.code == 0 or said.out:
            return Tried("forward", "held", f"a forward to {run} is allowed (no run listens there now)")
        return Tried("forward", "SHUT", f"no forward to {run}: {_last(said.err)}", _key_fix(farm))

    return judge


def _shell(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if _SHELL_MARK in said.out:
            return Tried("shell", "OPEN", "a command was run", _key_fix(farm))
        return Tried("shell", "held", "no command is run")

    return judge


def _terminal(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if _SHELL_MARK in said.out:
            return Tried("terminal", "OPEN", "a login shell was given", _key_fix(farm))
        return Tried("terminal", "held", "no login shell")

    return judge


def _other_port(farm: Farm, port: int) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if any(word in said.err for word in FORBIDDEN):
            return Tried("another port", "held", f"127.0.0.1:{port} is forbidden")
        if said.out or "connect failed" in said.err:
            return Tried("another port", "OPEN", f"a forward to 127.0.0.1:{port} was allowed", _key_fix(farm))
        if said.code is None:
            return Tried("another port", "note", "a forward was neither allowed nor refused in time")
        return Tried("another port", "held", f"127.0.0.1:{port}: {_last(said.err)}")

    return judge


def _listening(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if "Allocated port" in said.err:
            return Tried("listening", "OPEN", "a worker can listen on this box (ssh -R)", _key_fix(farm))
        if said.code is None:
            return Tried("listening", "note", "ssh -R was neither allowed nor refused in time")
        return Tried("listening", "held", "no ssh -R")

    return judge


def _unix_socket(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if REACHED in said.out:
            return Tried("unix socket", "OPEN", "Unix sockets such as docker.sock can be reached", _key_fix(farm))
        return Tried("unix socket", "held", "no Unix socket of this box is reached")

    return judge


def _rsync_write(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if said.code == 0:
            return Tried("write by rsync", "OPEN", "a worker can write here by rsync", _key_fix(farm))
        if "Another instance" in said.err:  # rrsync locks its folder only where it may write
            return Tried("write by rsync", "OPEN", "rrsync would let a worker write", _key_fix(farm))
        return Tried("write by rsync", "held", "rsync writes nothing")

    return judge


def _sftp_write(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if said.code == 0:
            return Tried("write by sftp", "OPEN", "a worker can write here by sftp", _key_fix(farm))
        return Tried("write by sftp", "held", "sftp writes nothing")

    return judge


def _tree(farm: Farm, listing: Sequence[str] | None) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if said.code:
            fix = f"fdl @{farm.label} publish makes the folder; rrsync must be at {farm.rrsync}"
            return Tried("tree", "SHUT", f"what is served cannot be listed: {_last(said.err)}", fix)
        names = _listed(said.out)
        if listing is not None and not set(names) <= set(listing):
            other = sorted(set(names) - set(listing))[0]
            return Tried(
                "tree", "OPEN", f"another folder than {farm.served} is served: it holds {other}", _key_fix(farm)
            )
        if "tree" not in names:
            return Tried("tree", "SHUT", f"nothing is published in {farm.served}", f"fdl @{farm.label} publish")
        return Tried("tree", "held", "the published tree can be pulled")

    return judge


def _above(farm: Farm, listing: Sequence[str] | None) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        names = _listed(said.out) if said.code == 0 else []
        if names and (listing is None or not set(names) <= set(listing)):
            return Tried("above the tree", "OPEN", f"it lists {names[0]}", _key_fix(farm))
        return Tried("above the tree", "held", "no way up from the served folder")

    return judge


def _listed(text: str) -> list[str]:
    """Names in rsync's listing: mode, size, date, time, name."""
    rows = (line.split(None, 4) for line in text.splitlines())
    return [row[4] for row in rows if len(row) == 5 and row[4] != "."]


def _data(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if said.code == 0:
            return Tried("data", "held", f"{farm.data} can be read")
        return Tried(
            "data",
            "SHUT",
            f"{farm.data} cannot be read: {_last(said.err)}",
            f"is it there, and {farm.controller.user}'s to read?",
        )

    return judge


def _beyond(farm: Farm) -> Callable[[Said], Tried]:
    def judge(said: Said) -> Tried:
        if said.code == 0:
            text = f"sftp reads all that {farm.controller.user} may read, not {farm.data} alone"
            return Tried("beyond the data", "note", text, "an account of its own, or ChrootDirectory: see the drop-in")
        return Tried("beyond the data", "held", f"nothing but {farm.data} is seen")

    return judge
