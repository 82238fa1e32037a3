"""The remote forward inside a fan-out's ssh session: what ssh is asked, and the line in which it says the port. Pure.

The port over there is the system's choice (``-R 0``): one that we fixed would stay bound after a power loss here. The
agent is told it only when ssh has said it, so its spec waits until then. The door over there is open to every user of
that box; the salt is what keeps them out.
"""

from __future__ import annotations

import re

_ALLOCATED = re.compile(r"Allocated port (\d+) for remote forward\b")

# In front of the user's own options, because the first of a key wins: the line with the port comes at LogLevel INFO,
# a shared master would keep the forward when we are gone, and an agent whose forward was refused would dial nowhere.
OPTIONS = ("LogLevel=INFO", "ControlPath=none", "ExitOnForwardFailure=yes")


def words(port: int) -> list[str]:
    """ssh's words for a door on that host's loopback that leads to our `port` here."""
    return ["-R", f"127.0.0.1:0:127.0.0.1:{port}"]


def port_in(line: str) -> int | None:
    """The port that ssh was given, when `line` of its stderr says so."""
    found = _ALLOCATED.search(line)
    return int(found.group(1)) if found else None


def hint(line: str) -> str:
    """What to do about a forward that was refused; "" for any other line."""
    if "remote port forwarding failed" in line.lower():
        return (
            "fix: the sshd there forbids it: set AllowTcpForwarding yes (and DisableForwarding no) in sshd_config, and "
            "in authorized_keys no restrict without port-forwarding; or delete tunnel: from fdl.yml"
        )
    return ""
