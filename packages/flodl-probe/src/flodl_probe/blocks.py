"""The config a probe was given: from fdl, from `--config FILE|-`, or, with PyYAML, from `--cluster FILE`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from flodl_wire import environ
from flodl_wire.faults import Refused

MAX_BYTES = 16 << 20


class Blocks:
    """Plain values as they were written; None for what is not there."""

    def __init__(self, document: dict[str, Any], source: str) -> None:
        self.cluster: Any = document.get("cluster")
        self.join: Any = document.get("join")
        manifest = document.get("manifest")
        self.manifest = manifest if isinstance(manifest, str) else None
        self.source = source


def read(config: str | None, cluster_file: str | None) -> Blocks:
    """The flags win over what fdl handed down. Raises Refused: unreadable, no JSON or YAML, no block of keys."""
    if config is not None:
        source = "stdin" if config == "-" else config
        return Blocks(_mapping(_json(_read(config, "--config"), source), source), source)
    if cluster_file is not None:
        document = _mapping(_yaml(_read(cluster_file, "--cluster"), cluster_file), cluster_file)
        if "cluster" not in document and "join" not in document:
            document = {"cluster": document} if "controller" in document or "workers" in document else document
        return Blocks(document, cluster_file)
    handed = os.environ.get(environ.CONFIG_JSON)
    if handed is None:
        return Blocks({}, "nothing")
    try:
        text = bytes.fromhex(handed.strip())
    except ValueError:
        raise _unusable(environ.CONFIG_JSON, "it is not hex", "unset it; fdl writes it") from None
    return Blocks(_mapping(_json(text, environ.CONFIG_JSON), environ.CONFIG_JSON), environ.CONFIG_JSON)


def _read(name: str, flag: str) -> bytes:
    try:
        if name == "-":
            return sys.stdin.buffer.read(MAX_BYTES)
        with Path(name).open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as err:
        raise _unusable(f"{flag} {name}", err.strerror or str(err), "name a file, or - for stdin") from None


def _json(text: bytes, source: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as err:
        fix = "`fdl @cluster config show --json` prints what belongs there; YAML goes to --cluster"
        raise _unusable(source, f"it is no JSON: {err}", fix) from None


def _yaml(text: bytes, source: str) -> Any:
    try:
        import yaml
    except ImportError:
        fix = "pip install 'flodl-probe[yaml]', or hand JSON to --config"
        raise _unusable(source, "reading YAML needs PyYAML, which is not installed", fix) from None
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as err:
        raise _unusable(source, f"it is no YAML: {' '.join(str(err).split())}", "mend the place it names") from None


def _mapping(document: Any, source: str) -> dict[str, Any]:
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise _unusable(source, "it is no block of keys", "cluster: and join: stand at its top")
    return document


def _unusable(source: str, why: str, fix: str) -> Refused:
    return Refused("bad-config", f"cannot use {source}", why, fix)
