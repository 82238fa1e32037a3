"""What was built for this host before the run: is it here, and is it for this Python?"""

from __future__ import annotations

import sys
from pathlib import Path

from flodl_wire.faults import Refused
from flodl_wire.specs import AgentSpec


def of(spec: AgentSpec) -> str:
    """The folder for the ranks' PYTHONPATH, absolute; "" when there is none, or when this host does not see it and can
    go on without. Raises Refused when it cannot, and for a build that another Python is to use.
    """
    if spec.site is None:
        return ""
    folder = (Path(spec.path or ".").expanduser() / spec.site.path).absolute()
    what = f"cannot use {spec.host}"
    if not folder.is_dir():
        if not spec.site.required:
            return ""
        why = f"it does not see what was built for it: there is no folder {folder}"
        fix = "share the project's folder with it (path: is where), bring target/ there, or delete build:"
        raise Refused("no-site", what, why, fix)
    own = "{}.{}".format(*sys.version_info[:2])
    if spec.site.python not in ("", own):
        why = f"its Python is {own}, and {folder} was built for {spec.site.python}"
        raise Refused("other-python", what, why, f"build with Python {own}, or give the host {spec.site.python}")
    return str(folder)


def note(spec: AgentSpec) -> str:
    """What is worth saying when this host goes on without what was built for it; "" else."""
    if spec.site is None or of(spec):
        return ""
    path = Path(spec.path or ".").expanduser() / spec.site.path
    return f"what was built for this host is not seen here ({path}): going on with what is installed"
