"""A fault that a training script does not catch ends it with its words, not with a traceback.

The Trainer runs inside somebody else's program, so there is no ``main`` of ours to wrap. Every other exception keeps
its traceback: it is the user's code that raised it, and that traceback is what they need.
"""

from __future__ import annotations

import sys
from types import TracebackType

from flodl_wire.faults import Fault

_before = sys.excepthook


def install() -> None:
    """Render uncaught faults by their own words from now on; anything else goes to the hook that stood there before."""
    global _before
    if sys.excepthook is not _hook:
        _before = sys.excepthook
        sys.excepthook = _hook


def _hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, Fault):
        print(f"flodl: {error.render()}", file=sys.stderr)
    elif isinstance(error, KeyboardInterrupt):
        print("flodl: interrupted", file=sys.stderr)  # Python goes on to end with the signal: a shell sees 130
    else:
        _before(kind, error, trace)
