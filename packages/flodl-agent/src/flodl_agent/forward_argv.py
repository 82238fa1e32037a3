"""The ssh command of a walk-in's forward, and what ssh's own words mean. Pure.

The family of a fault says who can mend it: Refused is a flaw of this box, which no later try will find gone; all else,
a changed host key too, may be mended over there, and is Transient.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from flodl_wire.address import Address
from flodl_wire.config import Ssh
from flodl_wire.faults import Fault, Refused, Transient

# Behind the user's own options: of one key said twice OpenSSH takes the first.
FIXED_OPTIONS = (
    "BatchMode=yes",  # never a prompt
    "ExitOnForwardFailure=yes",
    "ServerAliveInterval=30",
    "ServerAliveCountMax=3",
    "StrictHostKeyChecking=accept-new",
    "ControlMaster=no",  # a forward of a shared master would outlive us, and its socket's path may be too long
    "ControlPath=none",
    "ForwardAgent=no",
    "ForwardX11=no",
    "LogLevel=INFO",  # the reasons below are said at that level
)


def forward_argv(ssh: Ssh, local_port: int, controller: Address, program: str = "ssh") -> list[str]:
    """ssh that carries 127.0.0.1:`local_port` to `controller` as the ssh host sees it, and does nothing else."""
    argv = [program, "-N", "-T"]
    for option in (*ssh.options, *FIXED_OPTIONS):
        argv += ["-o", option]
    if ssh.port is not None:
        argv += ["-p", str(ssh.port)]
    if ssh.user:
        argv += ["-l", ssh.user]
    if ssh.identity_file:
        argv += ["-i", ssh.identity_file, "-o", "IdentitiesOnly=yes"]  # else an agent's keys use up the tries
    return [*argv, "-L", f"127.0.0.1:{local_port}:{controller}", "--", ssh.target or ""]


def shown(ssh: Ssh) -> str:
    """[user@]host[:port] for messages."""
    where = str(Address(ssh.target or "", ssh.port)) if ssh.port else ssh.target or ""
    return f"{ssh.user}@{where}" if ssh.user else where


def by_hand(ssh: Ssh) -> str:
    """A command to try the road with."""
    words = ["ssh", "-v", "-N"]
    words += ["-p", str(ssh.port)] if ssh.port else []
    words += ["-i", ssh.identity_file] if ssh.identity_file else []
    return shlex.join([*words, f"{ssh.user}@{ssh.target}" if ssh.user else ssh.target or ""])


def ended(ssh: Ssh, code: int, words: Sequence[str]) -> Fault:
    """Why ssh ended (or never got through), by what it said on stderr, `words`."""
    where = shown(ssh)
    what = f"cannot open a forward through {where}"
    text = "\n".join(words)
    last = words[-1].strip() if words else f"it said nothing (exit {code})"
    if "REMOTE HOST IDENTIFICATION HAS CHANGED" in text:
        return host_key_changed(ssh, known_hosts_of(text))
    if re.search(r"No \S+ host key is known for", text):
        return Transient(
            "host-key-unknown",
            what,
            "its host key is not in known_hosts, and your options forbid to take it",
            f"compare it once by hand: {by_hand(ssh)}",
        )
    if "UNPROTECTED PRIVATE KEY FILE" in text or "bad permissions" in text:
        return open_key_file(ssh)
    if "Permission denied" in text or "Too many authentication failures" in text:
        return Transient(
            "ssh-denied", what, f"it does not take our key; ssh says: {last}", f"try by hand: {by_hand(ssh)}"
        )
    for pattern, code_, why, fix in _CONNECTING:
        if re.search(pattern, text, re.IGNORECASE):
            return Transient(code_, f"cannot reach the sshd of {where}", why, fix)
    return Transient("ssh-ended", what, f"ssh says: {last}", f"try by hand: {by_hand(ssh)}")


_CONNECTING = (
    (
        r"connect to .* Connection refused",
        "refused",
        "nothing listens on that port (refused)",
        "start sshd there, or check the port: --ssh host:port",
    ),
    (
        r"connect to .* (timed out|Operation timed out)|Connection timed out",
        "timeout",
        "no answer, packets are dropped on the way (timed out)",
        "open that TCP port in its firewall",
    ),
    (
        r"connect to .* (No route to host|Network is unreachable)",
        "route",
        "no route leads to that address from here",
        "check the address, and `ip route get` on this host",
    ),
    (
        r"Could not resolve hostname",
        "name",
        "its name has no address here",
        "use the numeric address, or mend the name service",
    ),
)


def known_hosts_of(text: str) -> str:
    """The file in which ssh found the other key, "" when it does not say."""
    found = re.search(r"Offending \S+(?: \S+)? in (.+?):\d+", text)
    return found[1] if found else ""


def host_key_changed(ssh: Ssh, known_hosts: str) -> Fault:
    """A changed key is never accepted; the person is given the line that forgets the old one."""
    name = f"[{ssh.target}]:{ssh.port}" if ssh.port not in (None, 22) else ssh.target or ""
    where = ["-f", known_hosts] if known_hosts else []
    return Transient(
        "host-key-changed",
        f"cannot trust {shown(ssh)}",
        "its host key is not the one known here: the box was set up anew, its address was given to another, "
        "or somebody stands in between",
        f"when you know why: {shlex.join(['ssh-keygen', *where, '-R', name])}",
    )


def open_key_file(ssh: Ssh) -> Fault:
    key = ssh.identity_file or "the key file"
    return Refused(
        "open-key-file",
        f"cannot use the key {key}",
        "others may read it, so ssh refuses it",
        f"chmod 600 {shlex.quote(key)}",
    )


def refused_behind(ssh: Ssh, controller: Address, words: Sequence[str]) -> Fault:
    """The forward stands, and a connection through it was closed: what ssh said of it."""
    where = shown(ssh)
    what = f"cannot reach the controller through {where}"
    said = [line for line in words if "open failed" in line]
    text = said[-1] if said else ""
    if "administratively prohibited" in text or "unknown channel type" in text:
        return Transient(
            "forward-forbidden",
            what,
            f"forwarding to {controller} is forbidden there",
            f"in its sshd_config: AllowTcpForwarding yes and PermitOpen {controller}; in the authorized_keys line of "
            f'this key: restrict,port-forwarding,permitopen="{controller}"',
        )
    for pattern, code, why, fix in (
        (
            "refused",
            "refused",
            f"as seen from there nothing listens at {controller} (refused)",
            "start the run there first, or check the controller's address",
        ),
        (
            "timed out",
            "timeout",
            f"as seen from there {controller} does not answer, packets are dropped (timed out)",
            "open that TCP port in the controller's firewall",
        ),
        (
            "No route|unreachable",
            "route",
            f"as seen from there no route leads to {controller}",
            "the address is the controller's as the ssh host sees it; 127.0.0.1 when they are one box",
        ),
        (
            "not known|resolve|resolution",
            "name",
            f"as seen from there {controller} has no address",
            "use the numeric address",
        ),
    ):
        if re.search(pattern, text, re.IGNORECASE):
            return Transient(code, what, why, fix)
    why = f"what listens at {controller} closes at once" + (f" ({text})" if text else "")
    return Transient("closed-early", what, why, "check that address and port are those of a flodl controller")
