"""The ssh command that starts one of our tools on another box, and the shell words that find the tool there. Pure.

Whatever is said on a command line can be read in `ps`, so documents travel on the session's stdin. What is said is
quoted for `sh`, and the whole is one argument that even a csh or fish as login shell hands to `sh` unread.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from flodl_wire import environ

if TYPE_CHECKING:  # its codecs are felt in the start of a tool that only wants the options
    from flodl_wire.config import Ssh

# Behind the user's own options: of one key said twice OpenSSH takes the first.
FIXED_OPTIONS = (
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "BatchMode=yes",  # nobody sits there to be asked
    "StrictHostKeyChecking=accept-new",
)


def ssh_argv(
    host: str, ssh: Ssh | None, host_user: str | None, script: str, more: Sequence[str] = (), program: str = "ssh"
) -> list[str]:
    """The whole argv that has `sh` on `host` run `script`. `more` are further words in front of the destination.

    The login name is the configured one, else the controller's user, else ssh's own affair: never invented.
    """
    from flodl_wire.config import Ssh

    road = ssh or Ssh()
    argv = [program, "-T"]
    for option in (*road.options, *FIXED_OPTIONS):
        argv += ["-o", option]
    if road.port is not None:
        argv += ["-p", str(road.port)]
    if road.identity_file:
        argv += ["-i", road.identity_file]
    user = road.user or (None if "@" in (road.target or host) else host_user)
    if user:
        argv += ["-l", user]
    return [*argv, *more, "--", road.target or host, f"exec /bin/sh -c {shlex.quote(script)}"]


def enter(path: str | None, env: Mapping[str, str], otherwise: str = "") -> str:
    """Shell words: into the folder `path` (when that fails: run `otherwise`), then `env`. Names that no shell takes
    are left out.
    """
    steps = []
    if path:
        steps.append(f"cd -- {quoted_path(path)} 2>/dev/null || {{ {otherwise or ':'}; }}; ")
    names = [name for name in env if environ.is_valid_name(name)]
    if names:
        steps.append("export " + " ".join(f"{name}={shlex.quote(env[name])}" for name in names) + "; ")
    return "".join(steps)


def find_and_run(tool: str, words: Sequence[str], otherwise: str) -> str:
    """Shell words that become `tool WORDS`, wherever it is installed: the project's own environment first (we stand in
    the project's folder), then the user's, then what a login shell would find; else `otherwise`.

    A profile may print a banner, so only the last line counts; it gets no stdin, because a document waits there.
    """
    run = f'exec "$a" {shlex.join(words)}'
    return (
        f'for a in "$PWD/.venv/bin/{tool}" "$HOME/.local/bin/{tool}"; do if [ -x "$a" ]; then {run}; fi; done; '
        'for s in "${SHELL:-/bin/sh}" /bin/sh; '
        f'do a=$("$s" -lc "command -v {tool}" </dev/null 2>/dev/null | tail -n 1); '
        f'if [ -x "$a" ]; then {run}; fi; done; {otherwise}'
    )


def quoted_path(path: str) -> str:
    """`path` for the shell; a leading ~ stays what a user means by it."""
    if path == "~" or path.startswith("~/"):
        return '"$HOME"' + (shlex.quote(path[1:]) if path[1:] else "")
    return shlex.quote(path)
