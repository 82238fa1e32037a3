"""Running something in a service of a project's compose file: the words, and the script that says them elsewhere. Pure.

`docker compose run` takes hosts by `--add-host` in some versions only, and a compose file takes `extra_hosts` in all:
so the pairs are written into a second file that is laid over the project's own, and the option is said where this
docker knows it.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence

FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")  # in docker's own order
FOLDER = ".fdl"  # of the project; it ignores itself in git

MISSING = ("there is no `docker` on PATH", "install docker with its compose plugin there, or delete docker:")


def overlay_name(service: str) -> str:
    """Where the second compose file lies, relative to the project."""
    return f"{FOLDER}/compose-hosts.{service}.yml"


def overlay(service: str, pairs: Sequence[str]) -> str:
    """The second compose file: `pairs` ("name:ip") as `extra_hosts` of `service`. JSON, which is YAML."""
    return json.dumps({"services": {service: {"extra_hosts": list(pairs)}}}) + "\n"


def override_of(file: str) -> str:
    """The file that docker lays over `file` by itself, unless files are named: then we must name it, too."""
    stem, _, ending = file.rpartition(".")
    return f"{stem}.override.{ending}"


def run_words(service: str, names: Iterable[str], pairs: Sequence[str], *, tty: bool = False) -> list[str]:
    """The words from `run` to the service. `names` are variables that go in as they are here, so that no value stands
    on a command line; `pairs` only where this docker takes them.
    """
    words = ["run", "--rm"] if tty else ["run", "--rm", "-T"]
    for name in sorted(names):
        words += ["-e", name]
    for pair in pairs:
        words += ["--add-host", pair]
    return [*words, service]


def takes_add_host(run_help: str) -> bool:
    """Whether the docker whose `compose run --help` says `run_help` has the option; one that says nothing may."""
    return "--add-host" in run_help or "--rm" not in run_help


def script(service: str, names: Iterable[str], pairs: Sequence[str], inner: str, complaint: Sequence[str]) -> str:
    """What `sh` in the project's folder does to become `inner`, which `sh` runs in the service; without a docker it
    says the lines of `complaint` and exits 127. One line, because a csh as login shell takes no other.
    """
    said = "".join(f"echo {shlex.quote(line)} >&2; " for line in complaint)
    steps = [f"command -v docker >/dev/null 2>&1 || {{ {said}exit 127; }}; "]
    plain = ["docker", "compose", *run_words(service, names, ()), "sh", "-c", inner]
    if not pairs:
        return "".join([*steps, f"exec {shlex.join(plain)}"])
    over, text = overlay_name(service), shlex.quote(overlay(service, pairs).rstrip("\n"))
    steps += [
        f"mkdir -p {FOLDER} && {{ [ -e {FOLDER}/.gitignore ] || echo '*' >{FOLDER}/.gitignore; }} && ",
        f'printf "%s\\n" {text} >{FOLDER}/.hosts.$$ && mv -f {FOLDER}/.hosts.$$ {shlex.quote(over)} || exit 1; ',
        'set --; if [ -n "$COMPOSE_FILE" ]; then ',
        f'COMPOSE_FILE="$COMPOSE_FILE${{COMPOSE_PATH_SEPARATOR:-:}}"{shlex.quote(over)}; export COMPOSE_FILE; else ',
        f'for f in {" ".join(FILES)}; do if [ -f "$f" ]; then set -- -f "$f"; o="${{f%.*}}.override.${{f##*.}}"; ',
        f'if [ -f "$o" ]; then set -- "$@" -f "$o"; fi; set -- "$@" -f {shlex.quote(over)}; break; fi; done; fi; ',
        'case "$(docker compose run --help 2>/dev/null)" in *--add-host*) ;; *--rm*) ',
        f'exec docker compose "$@" {shlex.join([*run_words(service, names, ()), "sh", "-c", inner])};; esac; ',
        f'exec docker compose "$@" {shlex.join([*run_words(service, names, pairs), "sh", "-c", inner])}',
    ]
    return "".join(steps)
