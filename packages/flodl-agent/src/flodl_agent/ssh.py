"""The ssh command that starts an agent on another box: `flodl_wire.ssh_argv` with what an agent needs around it. Pure.

Whatever is said on a command line can be read in `ps`, so the spec is not: it travels on the session's stdin.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from flodl_agent import tunnel
from flodl_wire import compose, environ
from flodl_wire.config import Ssh
from flodl_wire.ssh_argv import enter, find_and_run, ssh_argv

INSTALL = "python3 -m venv .venv && .venv/bin/pip install flodl-agent flodl-planes"

_MISSING = (
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
    no_folder = shlex.quote(f"flodl: {host} has no folder {path} (path: in fdl.yml)")
    there = enter(path, env, f"echo {no_folder} >&2; exit 1")
    if docker:
        install = f"put flodl-agent and flodl-planes into the image of the service {docker} (pip install)"
        why, fix = compose.MISSING
        lines = (f"flodl: {host} cannot run the service {docker}: {why}", f"fix: {fix}")
        names = [name for name in env if environ.is_valid_name(name)]
        return there + compose.script(docker, names, extra_hosts, _ON_PATH + _find(install), lines)
    return there + _find(f"on {host}: cd {path or '~'} && {INSTALL}")


def _find(fix: str) -> str:
    return find_and_run("flodl-agent", ["run"], f"{_MISSING}echo {shlex.quote(f'fix: {fix}')} >&2; exit 127")


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
    """The whole argv, as of `ssh_argv`. `tunneled`: our port, to which the session opens a door over there. The rest
    as for `remote_script`.
    """
    road, door = ssh or Ssh(), list[str]()
    if tunneled is not None:
        road = msgspec.structs.replace(road, options=[*tunnel.OPTIONS, *road.options])
        door = tunnel.words(tunneled)
    return ssh_argv(host, road, host_user, remote_script(host, path, env, docker, extra_hosts), door, program)


def warnings(host: str, ssh: Ssh | None) -> list[str]:
    """What in the user's options will bite."""
    found = []
    for option in ssh.options if ssh else []:
        key, _, value = option.replace("=", " ", 1).partition(" ")
        if key.lower() == "batchmode" and value.strip().lower() not in ("yes", "true"):
            found.append(f"ssh option {option!r} of {host}: ssh may stop and ask for a password, and nobody sits there")
    return found
