"""What a publish is asked for: the `publish:` block, over it the flags, over both the `--` tail. Parsed whole first."""

from __future__ import annotations

import json
import os
import posixpath
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flodl_publish import run_manifest, source
from flodl_publish.source import Source
from flodl_wire import environ
from flodl_wire.faults import Refused
from flodl_wire.served_runs import DEFAULT_SERVED

KEYS = ("source", "bin", "cwd", "build", "to", "identity", "args")


@dataclass(frozen=True)
class Settings:
    """`bin` is relative to `cwd`, `cwd` to the source ("" for its root); `to` is absolute."""

    source: Source
    bin: str
    cwd: str
    build: str
    to: Path
    identity: str
    args: list[str]


@dataclass(frozen=True)
class Handed:
    """What `fdl` (or --config) hands over: the block, the project's folder, the controller's address."""

    block: dict[str, Any]
    project: Path | None
    controller: str


def handed(config: str | None) -> Handed:
    """Raises Refused when the document is none."""
    text = ""
    try:
        if config is not None:
            text = sys.stdin.read() if config == "-" else Path(config).read_text("utf-8")
        elif hexed := os.environ.get(environ.CONFIG_JSON, ""):
            text = bytes.fromhex(hexed).decode()
        document = json.loads(text) if text else {}
    except (OSError, ValueError) as err:
        raise Refused("bad-config", f"cannot read {config or environ.CONFIG_JSON}", str(err)) from None
    block = document.get("publish", {}) if isinstance(document, dict) else None
    if not isinstance(block, dict):
        raise Refused("bad-config", "cannot use publish", "it must be a block of keys")
    manifest = document.get("manifest")
    cluster = document.get("cluster")
    controller = cluster.get("controller") if isinstance(cluster, dict) else None
    host = controller.get("host") if isinstance(controller, dict) else None
    return Handed(
        block, Path(manifest).parent if isinstance(manifest, str) else None, host if isinstance(host, str) else ""
    )


def settle(given: Handed, flags: Mapping[str, str | None], tail: list[str] | None) -> Settings:
    """Flags win field by field; a tail, even an empty one, replaces `args`. Raises Refused naming the key."""
    block = _checked(given.block)
    merged = {**block, **{key: value for key, value in flags.items() if value is not None}}
    args = block.get("args", []) if tail is None else tail
    for name, words in (("args", args), *((key, [merged[key]]) for key in merged if key != "args")):
        for word in words:
            if not word.isprintable() and any(ord(c) == 0 or "\ud800" <= c <= "\udfff" for c in word):
                raise _refuse(name, "it holds bytes that are no UTF-8, or a NUL")
    for key, example in (("source", "file:///home/op/my-train"), ("bin", "train.py")):
        if not str(merged.get(key, "")).strip():
            flag = "name it: fdl publish file:///…" if key == "source" else f"--{key} {example}"
            raise _refuse(key, "it is missing", f"{flag}, or publish.{key}: {example} in fdl.yml")
    cwd = str(merged.get("cwd", ""))
    if run_manifest.leads_out(cwd or "."):
        raise _refuse("cwd", f"{cwd!r} leads out of the source", "name a folder in the source, relative to its root")
    cwd = "" if posixpath.normpath(cwd or ".") == "." else posixpath.normpath(cwd)
    program = merged["bin"]
    if program.startswith(("/", "~")) or run_manifest.leads_out(f"{cwd or '.'}/{program}"):
        raise _refuse("bin", f"{program!r} leads out of the source", "name it relative to the project's folder (--cwd)")
    to = _place("to", str(merged.get("to", DEFAULT_SERVED)), given.project if flags.get("to") is None else None)
    identity = str(merged.get("identity", ""))
    if identity:
        identity = str(_place("identity", identity, given.project if flags.get("identity") is None else None))
    parsed = source.parse(merged["source"])
    _keep_apart(parsed, to)
    return Settings(parsed, posixpath.normpath(program), cwd, merged.get("build", ""), to, identity, list(args))


def _checked(block: dict[str, Any]) -> dict[str, Any]:
    for key, value in block.items():
        if key not in KEYS:
            import difflib  # its import is felt in every publish

            close = difflib.get_close_matches(str(key), KEYS, 1)
            why = "--no-build has no key on purpose: it would ship every typo to come" if key == "no_build" else ""
            raise _refuse(key, "there is no such key" + (f"; did you mean {close[0]}?" if close else ""), why)
        if key == "args":
            if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
                raise _refuse(key, "it must be a list of texts", 'put numbers in quotes: args: [--epochs, "1"]')
        elif not isinstance(value, str):
            raise _refuse(key, "it is empty" if value is None else f"it must be text, not {json.dumps(value)}")
    return block


def _refuse(key: object, why: str, fix: str = "") -> Refused:
    return Refused("bad-config", f"cannot publish with publish.{key}", why, fix or f"it takes {', '.join(KEYS)}")


def _place(key: str, path: str, base: Path | None) -> Path:
    """A path of the command line is the shell's, one of the block the project's."""
    if not path.strip():
        raise _refuse(key, "it is blank")
    return Path(os.path.normpath((base or Path.cwd()) / Path(path).expanduser()))


def _keep_apart(parsed: Source, to: Path) -> None:
    """A served folder in the source would be published itself; a source in it would be wiped."""
    if parsed.kind != "file":
        return
    root, served = os.path.realpath(parsed.path), os.path.realpath(to)
    for inner, outer, why in (
        (served, root, f"{to} lies in the source: it would publish itself"),
        (root, served, f"the source lies in the served folder {to}, which a publish overwrites"),
    ):
        if (inner + "/").startswith(outer.rstrip("/") + "/"):
            raise Refused("nested", f"cannot publish {parsed.origin}", why, "choose another folder with --to")
