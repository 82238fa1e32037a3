"""Putting the farm's line into an authorized_keys, once somebody has said so in as many words."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from flodl_cli.join_config import authorized_keys, key_line
from flodl_cli.join_config.farm import Farm
from flodl_wire.faults import Refused


@dataclass(frozen=True)
class Installed:
    """`state`: installed (now), kept (it was there), absent, differs, retired. `chmod`: lines still to be run."""

    path: str
    state: str
    chmod: list[str] = field(default_factory=list)


def look(farm: Farm, retired: Sequence[str], path: str | None) -> Installed:
    """What is there now; nothing is changed. Raises Refused."""
    where = authorized_keys.place(path)
    line = key_line.key_line(farm).encode()
    blob = key_line.blob_of(farm.public_key).encode()
    state = authorized_keys.standing(authorized_keys.read(where), line, blob, [each.encode() for each in retired])
    return Installed(where.path, "kept" if state == "installed" else state, _chmods(where))


def install(
    farm: Farm, retired: Sequence[str], path: str | None, user: str, may_chmod: Callable[[list[str]], bool]
) -> Installed:
    """Raises Fault, the file as it was. `may_chmod` is asked with the lines when others may write the file."""
    if path is None and user != farm.controller.user:
        theirs = f"~{farm.controller.user}/.ssh/authorized_keys"
        raise Refused(
            "other-user",
            "cannot install the key",
            f"workers come in as {farm.controller.user}, and your own authorized_keys lets them in as {user or 'you'}",
            f"--authorized-keys {theirs}, as somebody who may write it; or --controller {user}@…",
        )
    where = authorized_keys.place(path)
    before = authorized_keys.read(where)
    own = [key_line.blob_of(farm.public_key).encode(), *(each.encode() for each in retired)]
    after = authorized_keys.edited(before, key_line.key_line(farm).encode(), own)
    if after != before:
        authorized_keys.write(where, before, after)
    flaws = authorized_keys.permission_flaws(where)
    if flaws and may_chmod(_chmods(where)):
        for each, mode in flaws:
            try:
                os.chmod(each, mode)
            except OSError as err:
                what = f"cannot make {each} its owner's alone"
                raise Refused("permission", what, err.strerror or str(err)) from None
    return Installed(where.path, "kept" if after == before else "installed", _chmods(where))


def _chmods(where: authorized_keys.Place) -> list[str]:
    return [authorized_keys.chmod_line(path, mode) for path, mode in authorized_keys.permission_flaws(where)]
