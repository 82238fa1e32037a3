"""A walk-in's program, pulled and built by flodl-publish: its words on stderr for people, its answer as JSON for us."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from flodl_agent import descent
from flodl_agent.join_recipe import Recipe
from flodl_agent.starting import start
from flodl_wire import sibling
from flodl_wire.faults import Broken, from_dict
from flodl_wire.libtorch import Variant
from flodl_wire.remote_path import RemotePath, parse

PLACE = "~/.flodl/source"
_GIT_SSH = re.compile(r"git\+ssh://(?:(?P<user>[^@/]*)@)?(?P<host>\[[^\]]+\]|[^/:]+)(?P<port>:\d+)?/")
_SECRET = re.compile(r"(?<=://)[^/@]*:[^/@]*@")
_Answer = TypeVar("_Answer", bound=msgspec.Struct)
_LAST_WORD = 5.0  # seconds for what it printed last
_FAULT = "flodl-publish: cannot "
_GOODBYE = 20.0  # seconds that a build gets to end what it started


class Pulled(msgspec.Struct):
    """Of ``flodl-publish fetch --json``: what was published, or this box's own recipe where nothing was."""

    tree: str
    published: bool
    bin: str
    cwd: str
    build: str
    args: list[str]
    run: str = ""
    notes: list[str] = []


class Built(msgspec.Struct):
    """Of ``flodl-publish build --json``. `python` runs a `*.py`, "" for anything else."""

    bin: str
    cwd: str
    args: list[str]
    run: str = ""
    python: str = ""

    @property
    def program(self) -> list[str]:
        return [self.python, self.bin] if self.python else [self.bin]


class _Failed(msgspec.Struct):
    error: dict[str, str]


def fetch(recipe: Recipe) -> Pulled:
    """Raises Transient or Broken for what may go better next time, Refused for what will not."""
    return _answer(["fetch", *fetch_words(recipe)], Pulled)


def build(recipe: Recipe, pulled: Pulled, variant: Variant | None, *, quiet: bool) -> Built:
    """`quiet`: its output was seen before. Raises as `fetch`."""
    words = ["build", _place(), "--json", *(["--quiet"] if quiet else [])]
    if variant is not None:
        words += ["--libtorch", str(variant.folder)]
    if not pulled.published:
        words += _own(recipe)
    return _answer(words, Built)


def fetch_words(recipe: Recipe) -> list[str]:
    """Pure. The key and the options are those of --ssh, and on the very host that it names its port and user, too."""
    assert recipe.source is not None
    words = [recipe.source.origin, "--to", _place(), "--json", "--quiet", *_own(recipe)]
    if recipe.identity:
        words += ["--identity", recipe.identity]
    options = list(recipe.ssh_options)
    host, user, port = _login(recipe.source.origin)
    if recipe.ssh is not None and host and host == recipe.ssh.target:
        options += [f"Port={recipe.ssh.port}"] if recipe.ssh.port and not port else []
        options += [f"User={recipe.ssh.user}"] if recipe.ssh.user and not user else []
    return words + [word for option in options for word in ("--ssh-option", option)]


def shown(spec: str) -> str:
    """Without a password."""
    return _SECRET.sub("", spec)


def _own(recipe: Recipe) -> list[str]:
    assert recipe.source is not None
    named = {"--bin": recipe.source.bin, "--cwd": recipe.source.cwd, "--build": recipe.source.build}
    return [word for flag, value in named.items() if value for word in (flag, value)]


def _login(spec: str) -> tuple[str, bool, bool]:
    """The host that a spec goes to by ssh ("" for none), and whether it names user and port itself."""
    if spec.startswith("rsync://"):
        found = parse(spec.removeprefix("rsync://"))
        return (
            (found.host, bool(found.user), found.port is not None)
            if isinstance(found, RemotePath)
            else ("", False, False)
        )
    if git := _GIT_SSH.match(spec):
        return git["host"].strip("[]"), bool(git["user"]), bool(git["port"])
    return ("", False, False)


def _place() -> str:
    return str(Path(PLACE).expanduser())


def _relay(stream: IO[str], held: list[str]) -> None:
    """Its words as they come, but for the fault at their end: that is in the document, and told by us."""
    with stream:
        for line in stream:
            if held or line.startswith(_FAULT):
                held.append(line.rstrip("\n"))
            else:
                print(line, end="", file=sys.stderr, flush=True)


def _answer(words: Sequence[str], kind: type[_Answer]) -> _Answer:
    """Run ``flodl-publish WORDS`` and read its one document. It ends when we do, and all that it started with it."""
    us = os.getpid()
    process = start(
        [sibling.require("flodl-publish"), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C reaches it through us, once
        preexec_fn=lambda: descent.die_with(us, signal.SIGINT),
    )
    assert process.stdout and process.stderr
    held: list[str] = []
    relay = threading.Thread(target=_relay, args=(process.stderr, held), daemon=True)
    relay.start()
    with process.stdout:
        try:
            said = process.stdout.read()
            process.wait()
            relay.join(_LAST_WORD)
        except BaseException:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_GOODBYE)
            process.kill()
            process.wait()
            raise
    try:
        if process.returncode == 0:
            return msgspec.json.decode(said, type=kind)
        raise from_dict(msgspec.json.decode(said, type=_Failed).error)
    except msgspec.MsgspecError:
        print("\n".join(held), file=sys.stderr, flush=True)
        why = f"it ended with {process.returncode} and gave no answer"
        raise Broken("publish-failed", f"cannot {words[0]} the program", why, "its own words stand above") from None
