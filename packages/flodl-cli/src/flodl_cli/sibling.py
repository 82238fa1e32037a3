"""Handing over to another executable: where it is, and what to install when it is not there."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def find(name: str) -> str | None:
    """The path of the executable `name`: beside this Python first (one environment belongs together), then on PATH.

    The folder is that of `sys.executable` as it stands: a virtual environment's `python` is a symlink, and its tools
    lie beside the link, not beside its target.
    """
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.access(beside, os.X_OK):
        return beside
    for folder in os.environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder or os.curdir, name)
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    return None


def require(name: str, package: str, what: str) -> str:
    """`find`, or Refused (exit 127) with the line that installs the package; `what` is what the user wanted."""
    path = find(name)
    if path is None:
        from flodl_wire import exits
        from flodl_wire.faults import Refused

        raise Refused(
            "no-tool",
            f"cannot {what}",
            f"{name} is not installed beside {sys.executable}, nor on PATH",
            f"pip install {package}",
            exit_code=exits.NO_COMMAND,
        )
    return path


def hand_over(argv: list[str]) -> NoReturn:
    """Become `argv`. Raises Refused when the system will not run it."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execv(argv[0], argv)
    except OSError as err:
        from flodl_wire import exits
        from flodl_wire.faults import Refused

        raise Refused(
            "no-exec", f"cannot run {argv[0]}", err.strerror or str(err), exit_code=exits.NO_COMMAND
        ) from None
