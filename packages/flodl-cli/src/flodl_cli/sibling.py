"""Handing over to another executable: where it is, and what to install when it is not there."""

from __future__ import annotations

import os
import sys

from flodl_wire.sibling import find as find

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


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
