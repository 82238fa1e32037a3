"""``fdl why --bundle``: everything somebody needs to help, in one file, and nothing that is nobody's business.

Secrets are taken out three times over (masking.py): the run's own when its logs were written, those of this
environment and of the config by their values now, the rest by their names and shapes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import platform
import subprocess
import tarfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from flodl_window.aftermath import account as accounts
from flodl_window.aftermath import why_text
from flodl_window.aftermath.account import Account
from flodl_window.aftermath.masking import MASK, Mask, secret_values
from flodl_window.aftermath.run_files import RunFiles
from flodl_wire import environ, sibling
from flodl_wire.faults import Refused, printable

LOG_BYTES = 4 << 20  # the end of each log
ALL_LOGS = 64 << 20
CONFIG_PATIENCE = 20.0  # seconds for fdl to show its config

_WHAT = {
    "README.txt": "this list",
    "why.txt": "the account: first cause, last lines, versions",
    "why.json": "the same for programs",
    "state.json": "the run's last state",
    "result.json": "its figures",
    "history.json": "its curves",
    "events.jsonl": "what the window heard, in order",
    "metrics.jsonl": "epochs and rounds",
    "config.json": "fdl.yml and overlays, merged",
    "versions.json": "packages of the controller, versions of every host",
}


def pack(files: RunFiles, told: Account, target: Path) -> dict[str, Any]:
    """Write `target`; what is inside, as a document. Raises Refused, and leaves what was there."""
    target = target.expanduser().absolute()
    if target.is_dir():
        raise Refused("bad-target", f"cannot write {target}", "it is a folder", "name a file in it: …/run.tar.gz")
    config = _config(told)
    command = [str(word) for word in told.opened.get("command") or []]
    mask = Mask(secret_values(_own(os.environ), command, config))
    entries = _entries(files, told, config, mask)
    new = target.with_name(f".{target.name}.new")
    try:
        with tarfile.open(new, "w:gz") as tar:
            for name, body in entries.items():
                info = tarfile.TarInfo(f"flodl-{files.run}/{name}")
                info.size, info.mtime, info.mode = len(body), int(time.time()), 0o644
                tar.addfile(info, io.BytesIO(body))
        new.chmod(0o600)
        new.replace(target)
    except OSError as err:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
        raise Refused(
            "no-bundle", f"cannot write {target}", err.strerror or str(err), "make room or rights there"
        ) from None
    return {
        "v": 1,
        "run": files.run,
        "file": str(target),
        "bytes": target.stat().st_size,
        "entries": [{"name": name, "bytes": len(body), "what": _what(name)} for name, body in entries.items()],
        "masked": sum(body.count(MASK.encode()) for body in entries.values()),
    }


def shown(packed: dict[str, Any]) -> str:
    """The document of `pack` for people."""
    lines = [f"{packed['file']} ({_size(packed['bytes'])}) holds of run {packed['run']}:"]
    lines += [f"  {each['name']:<24} {_size(each['bytes']):>9}  {each['what']}" for each in packed["entries"]]
    lines += [
        f"Taken out: {packed['masked']} passwords, tokens, keys and the like, each now {MASK}. A secret that a program",
        "printed without a name, and that this environment does not hold, looks like any word: read before you send.",
    ]
    return printable("\n".join(lines) + "\n")


def _entries(files: RunFiles, told: Account, config: Any, mask: Mask) -> dict[str, bytes]:
    made: dict[str, bytes] = {}
    made["why.txt"] = mask.text(why_text.render(told)).encode("utf-8", "replace")
    made["why.json"] = _json(mask.tree(accounts.document(told)))
    for name, document in (("state.json", files.state), ("result.json", files.result)):
        if document:
            made[name] = _json(mask.tree(document))
    with contextlib.suppress(OSError, ValueError, RecursionError):
        made["history.json"] = _json(mask.tree(json.loads((files.path / "history.json").read_bytes())))
    for name in ("events.jsonl", "metrics.jsonl"):
        if body := _end_of(files.path / name, LOG_BYTES):
            made[name] = _rows(body, mask)
    if config is not None:
        made["config.json"] = _json(mask.tree(config))
    made["versions.json"] = _json(mask.tree(_versions(told)))
    room = ALL_LOGS
    for stem in files.log_names():
        body = _end_of(files.path / "log" / f"{stem}.log", min(LOG_BYTES, room))
        room -= len(body)
        made[f"log/{stem}.log"] = mask.text(body.decode("utf-8", "replace")).encode("utf-8", "replace")
    listing = "".join(f"{name:<24} {_what(name)}\n" for name in ["README.txt", *made])
    made["README.txt"] = f"Run {files.run} of flodl, for somebody who helps. Secrets are {MASK}.\n\n{listing}".encode(
        "utf-8", "replace"
    )
    return dict(sorted(made.items()))


def _what(name: str) -> str:
    return _WHAT.get(name, "what that process printed, its end")


def _own(environment: Any) -> dict[str, str]:
    return {name: value for name, value in environment.items() if not name.startswith(environ.INTERNAL_PREFIX)}


def _config(told: Account) -> Any:
    """The project's merged config: as fdl shows it, else the blocks it handed over."""
    project, tool = str(told.opened.get("project") or "."), sibling.find("fdl")
    if tool is not None and Path(project).is_dir():
        overlay = str(told.opened.get("overlay") or "")
        words = [tool, *(["--env", overlay] if overlay else []), "config", "show", "--json"]
        inherited = {name: value for name, value in os.environ.items() if name != environ.FDL_ENV}
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            done = subprocess.run(
                words,
                cwd=project,
                env=inherited,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=CONFIG_PATIENCE,
                check=False,
            )
            if done.returncode == 0:
                return json.loads(done.stdout)
    with contextlib.suppress(KeyError, ValueError):
        return json.loads(bytes.fromhex(os.environ[environ.CONFIG_JSON]))
    return None


def _versions(told: Account) -> dict[str, Any]:
    installed = {str(each.metadata["Name"]): each.version for each in metadata.distributions() if each.metadata["Name"]}
    here = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "packages": dict(sorted(installed.items())),
    }
    return {"here": here, "at_launch": told.packages, "hosts": told.hosts, "git": told.git}


def _rows(body: bytes, mask: Mask) -> bytes:
    out = []
    for line in body.split(b"\n"):
        try:
            out.append(json.dumps(mask.tree(json.loads(line))))
        except (ValueError, RecursionError):
            out.append(mask.text(line.decode("utf-8", "replace")))
    return "\n".join(out).encode("utf-8", "replace")


def _end_of(path: Path, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - most))
            body = file.read(most)
    except OSError:
        return b""
    return body if size <= most else body.partition(b"\n")[2]  # no half line, which could hold half a secret


def _json(document: Any) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()


def _size(count: int) -> str:
    return (
        f"{count} B" if count < 1024 else f"{count / 1024:.1f} kB" if count < 1 << 20 else f"{count / (1 << 20):.1f} MB"
    )
