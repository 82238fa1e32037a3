"""The ssh command that starts an agent on another box. Pure.

Whatever is said on a command line can be read in `ps`, so the spec is not: it travels on the session's stdin. What is
said is quoted for `sh`, and the whole is one argument that even a csh or fish as login shell hands to `sh` unread.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from flodl_agent import tunnel
from flodl_wire import compose, environ
from flodl_wire.config import Ssh

# Behind the user's own options: of one key said twice OpenSSH takes the first.
FIXED_OPTIONS = (
    "ServerAliveInterval=10",
    "ServerAliveCountMax=3",
    "BatchMode=yes",  # nobody sits there to be asked
    "StrictHostKeyChecking=accept-new",
)

INSTALL = "python3 -m venv .venv && .venv/bin/pip install flodl-agent flodl-planes"

# First the project's own environment, then the user's, then what the login shell would find. A profile may print a
# banner, so only the last line counts; it gets no stdin, because the spec waits there.
_FIND_AND_RUN = (
    'for a in "$PWD/.venv/bin/flodl-agent" "$HOME/.local/bin/flodl-agent"; '
    'do if [ -x "$a" ]; then exec "$a" run; fi; done; '
    'for s in "${SHELL:-/bin/sh}" /bin/sh; '
    'do a=$("$s" -lc "command -v flodl-agent" </dev/null 2>/dev/null | tail -n 1); '
    'if [ -x "$a" ]; then exec "$a" run; fi; done; '
    'echo "flodl-agent is not installed on $(uname -n): neither in $PWD/.venv/bin, nor in $HOME/.local/bin, '
    'nor on the PATH of a login shell" >&2; '
)

# In a container PATH is what its image says, and a login shell's profile may overwrite it.
_ON_PATH = 'a=$(command -v flodl-agent) && exec "$a" run; '


def remote_script(
    host: str, path: str | None, env: Mapping[str, str], docker: str = "", extra_hosts: Sequence[str] = ()
) -> str:
    """What `sh` does over there: into the project's folder, environment, find the agent and become it; else exit 127
    saying how to install it. Names in `env` that no shell takes are left out.

    With `docker`, a service of the compose file in that folder, the agent is looked for and runs in there, and with it
    everything that it starts. `extra_hosts`: "name:ip" that the container is to know.
    """
    steps = []
    if path:
        folder = _quoted_path(path)
        complaint = shlex.quote(f"flodl: {host} has no folder {path} (path: in fdl.yml)")
        steps.append(f"cd -- {folder} || {{ echo {complaint} >&2; exit 1; }}; ")
    names = [name for name in env if environ.is_valid_name(name)]
    if names:
        steps.append("export " + " ".join(f"{name}={shlex.quote(env[name])}" for name in names) + "; ")
    if docker:
        install = f"fix: put flodl-agent and flodl-planes into the image of the service {docker} (pip install)"
        inner = f"{_ON_PATH}{_FIND_AND_RUN}echo {shlex.quote(install)} >&2; exit 127"
        why, fix = compose.MISSING
        lines = (f"flodl: {host} cannot run the service {docker}: {why}", f"fix: {fix}")
        return "".join([*steps, compose.script(docker, names, extra_hosts, inner, lines)])
    install = f"fix: on {host}: cd {path or '~'} && {INSTALL}"
    return "".join([*steps, _FIND_AND_RUN, f"echo {shlex.quote(install)} >&2; exit 127"])


def _quoted_path(path: str) -> str:
    """`path` for the shell; a leading ~ stays what a user means by it."""
    if path == "~" or path.startswith("~/"):
        return '"$HOME"' + (shlex.quote(path[1:]) if path[1:] else "")
    return shlex.quote(path)


def ssh_command(
    host: str,
    ssh: Ssh | None,
    host_user: str | None,
    path: str | None,
    env: Mapping[str, str],
    program: str = "ssh",
    tunneled: int | None = None,
    docker: str = "",
    extra_hosts: Sequence[str] = (),
) -> list[str]:
    """The whole argv. The login name is the configured one, else the controller's user, else ssh's own affair: never
    invented. `tunneled`: our port, to which the session opens a door over there. The rest as for `remote_script`.
    """
    road = ssh or Ssh()
    argv = [program, "-T"] if tunneled is None else [program, "-T", *tunnel.words(tunneled)]
    for option in (*(tunnel.OPTIONS if tunneled is not None else ()), *road.options, *FIXED_OPTIONS):
        argv += ["-o", option]
    if road.port is not None:
        argv += ["-p", str(road.port)]
    if road.identity_file:
        argv += ["-i", road.identity_file]
    user = road.user or (None if "@" in (road.target or host) else host_user)
    if user:
        argv += ["-l", user]
    script = remote_script(host, path, env, docker, extra_hosts)
    return [*argv, "--", road.target or host, f"exec /bin/sh -c {shlex.quote(script)}"]


def warnings(host: str, ssh: Ssh | None) -> list[str]:
    """What in the user's options will bite."""
    found = []
    for option in ssh.options if ssh else []:
        key, _, value = option.replace("=", " ", 1).partition(" ")
        if key.lower() == "batchmode" and value.strip().lower() not in ("yes", "true"):
            found.append(f"ssh option {option!r} of {host}: ssh may stop and ask for a password, and nobody sits there")
    return found
