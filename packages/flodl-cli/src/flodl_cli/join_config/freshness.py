"""How fresh a farm is: the age of its key and of the run it serves, and whether what is installed is what is here."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from flodl_cli.join_config import installing
from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.sshd_dropin import dropin, standing_ports
from flodl_wire.faults import Fault


@dataclass(frozen=True)
class Freshness:
    """Ages in seconds, None where there is nothing."""

    key_s: float | None = None
    published_s: float | None = None
    dropin: str = ""  # installed, differs, absent, none (a door without one)
    authorized_keys: str = ""  # installed, differs, retired, absent, unknown


def look(
    farm: Farm, facts: Facts, retired: Sequence[str], key_made: float | None, authorized_keys: str | None, user: str
) -> Freshness:
    """`key_made`: seconds since the epoch, None for a key that is not made. `authorized_keys`: a file that was named;
    without one only `user`'s own is looked at, and only when workers come in as that user.
    """
    line = "unknown"
    if authorized_keys is not None or user == farm.controller.user:
        with contextlib.suppress(Fault):  # a file that may not be read is not a farm that cannot be set up
            found = installing.look(farm, retired, authorized_keys).state
            line = "installed" if found == "kept" else found
    return Freshness(
        key_s=_age(key_made) if key_made is not None else None,
        published_s=_published(farm),
        dropin=_dropin(farm, facts),
        authorized_keys=line,
    )


def _dropin(farm: Farm, facts: Facts) -> str:
    if not farm.guarded:
        return "none"
    if facts.dropin is None:
        return "absent"
    return "installed" if facts.dropin == dropin(farm, standing_ports(facts)) else "differs"


def _published(farm: Farm) -> float | None:
    """Since the run that is served was published."""
    try:
        with open(os.path.join(farm.served, "tree", ".fdl-run.yml"), encoding="utf-8", errors="replace") as file:
            found = re.search(r"(?m)^published_epoch:\s*(\d+)", file.read(1 << 20))
    except OSError:
        return None
    return _age(int(found[1])) if found else None


def _age(since: float) -> float:
    return round(max(0.0, time.time() - since), 1)
