"""`.fdl-run.yml`, the manifest at the root of a published tree: read, checked and written (seed 001).

Its presence is the commit point of a publish; a worker learns from it what to build, what to run, and which run it is.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from flodl_publish.tree import MANIFEST
from flodl_wire.faults import Refused, Transient

NAME = MANIFEST
MAX_BYTES = 1 << 20
RUN_ID = re.compile(r"[0-9a-f]{32}\Z")
_PAIR = re.compile(r"\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}")
SHA256 = re.compile(r"[0-9a-f]{64}\Z")
KEYS = (
    *("cwd", "build", "bin", "args", "origin", "toolchain", "rustc", "published_epoch", "run", "built"),
    *("digest", "check"),
)


@dataclass(frozen=True)
class Digest:
    """Of the tree: `sha256` is that of the sidecar, which holds one line for each file."""

    sha256: str
    files: int
    bytes: int


@dataclass(frozen=True)
class RunManifest:
    """What a published run is. `cwd` is relative to the tree's root, `bin` to `cwd`; neither leads out of the tree."""

    bin: str
    run: str  # 32 hex; every publish makes a new one, and one world holds one
    published_epoch: int  # unix seconds
    cwd: str = ""
    build: str = ""
    args: list[str] = field(default_factory=list)
    origin: str = ""
    toolchain: str = ""  # advisory: of the controller; the seeds' `rustc` is read as this
    built: bool = True  # false: --no-build, nothing has built this tree
    digest: Digest | None = None  # None: written by an older flodl-publish

    def as_dict(self) -> dict[str, Any]:
        document = asdict(self)
        if self.digest is None:
            del document["digest"]
        return document

    def render(self) -> bytes:
        """The file. `check` binds the keys together, so that an edit by hand is seen."""
        document = self.as_dict()
        document["check"] = _check(document)
        head = "# Written by flodl-publish; workers refuse an edited one, and the next publish overwrites it.\n"
        lines = [f"{key}: {_yaml(value)}\n" for key, value in document.items()]
        return (head + "".join(lines)).encode()


def leads_out(path: str) -> bool:
    """True when a relative path is none, or climbs above the folder it starts in."""
    return path.startswith(("/", "~")) or posixpath.normpath(path).split("/")[0] == ".."


def path_in(place: Path) -> Path:
    """`place` itself when it is a file, else the manifest in the folder `place` or in its `tree/` (a served folder)."""
    if place.is_dir():
        served = place / "tree" / NAME
        is_served = served.exists() or (place / ".publish").is_dir()  # a tree may have a folder of that name
        return served if is_served and not (place / NAME).exists() else place / NAME
    return place


def read(path: Path) -> RunManifest:
    """The manifest in the file `path`.

    Raises Transient when there is none (not published yet, or being published), Refused when it is no manifest.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        why = "there is no such file: the run is not published, or a publish is under way or failed its gate"
        raise Transient(
            "no-manifest", f"cannot read {path}", why, "publish the run, or wait for the publish to end"
        ) from None
    except OSError as err:
        raise Refused("unreadable", f"cannot read {path}", err.strerror or str(err)) from None
    document = _as_written(data) if len(data) <= MAX_BYTES else "too large"
    return parse(_as_yaml(data, path) if document is None else document, str(path))


def _as_written(data: bytes) -> dict[str, Any] | None:
    """A key with JSON on each line, as we write it: YAML's reader is felt in a start. None for any other text."""
    document: dict[str, Any] = {}
    try:
        for line in data.decode("ascii").split("\n"):
            key, _, value = line.partition(": ")
            if line and not line.startswith("#"):
                document[key] = json.loads(value)
    except (ValueError, RecursionError):
        return None
    return document


def _as_yaml(data: bytes, path: Path) -> object:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document: object = yaml.load(data.decode("utf-8"), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as err:
        raise Refused("bad-manifest", f"cannot read {path}", f"it is no YAML: {str(err).splitlines()[0]}") from None
    return document


def parse(document: object, source: str) -> RunManifest:
    """A manifest from plain data. Raises Refused naming the first key that is wrong."""
    if not isinstance(document, dict):
        raise Refused("bad-manifest", f"cannot use {source}", "it is no block of keys", "publish the run again")

    def refuse(key: object, why: str) -> Refused:
        return Refused(
            "bad-manifest", f"cannot use {source}: {key}", why, "do not edit it by hand; publish the run again"
        )

    for key in document:
        if key not in KEYS:
            raise refuse(key, "there is no such key; it was written by a newer flodl-publish, or by hand")

    def text(key: str, default: str | None = None) -> str:
        value = document.get(key, default)
        if not isinstance(value, str) or "\0" in value:
            raise refuse(key, "it is missing" if value is None else "it must be text")
        return value

    cwd, binary = text("cwd", ""), text("bin")
    if leads_out(cwd):
        raise refuse("cwd", f"{cwd!r} leads out of the published tree")
    if not binary.strip():
        raise refuse("bin", "it is blank")
    if leads_out(binary) and (binary.startswith(("/", "~")) or leads_out(f"{cwd or '.'}/{binary}")):
        raise refuse("bin", f"{binary!r} leads out of the published tree")
    args = document.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
        raise refuse("args", "it must be a list of texts")
    epoch = document.get("published_epoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch < 1 << 40:
        raise refuse("published_epoch", "it must be the unix second of the publish")
    run = text("run")
    if not RUN_ID.match(run):
        raise refuse("run", "it must be 32 hex digits")
    built = document.get("built", True)
    if not isinstance(built, bool):
        raise refuse("built", "it must be true or false")
    digest = _digest(document.get("digest"), refuse)
    if "check" in document and document["check"] != _check({k: v for k, v in document.items() if k != "check"}):
        raise refuse("check", "its keys are not those that were published: it was edited by hand")
    toolchain = text("toolchain", "") or text("rustc", "")
    origin, build = text("origin", ""), text("build", "")
    return RunManifest(binary, run, epoch, cwd, build, args, origin, toolchain, built, digest)


def _digest(value: object, refuse: Any) -> Digest | None:
    if value is None:
        return None
    if not isinstance(value, dict) or set(value) != {"sha256", "files", "bytes"}:
        raise refuse("digest", "it must hold sha256, files and bytes")
    counts = [value["files"], value["bytes"]]
    if not isinstance(value["sha256"], str) or not SHA256.match(value["sha256"]):
        raise refuse("digest.sha256", "it must be 64 hex digits")
    if any(not isinstance(count, int) or isinstance(count, bool) or count < 0 for count in counts):
        raise refuse("digest", "files and bytes must be counts")
    return Digest(value["sha256"], *counts)


def _yaml(value: object) -> str:
    """JSON is YAML but for characters beyond the 16-bit plane, which JSON escapes as two."""
    return _PAIR.sub(lambda pair: f"\\U{ord(json.loads(f'{chr(34)}{pair[0]}{chr(34)}')):08x}", json.dumps(value))


def _check(document: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True, default=str).encode()).hexdigest()
