"""Every file of a farm, as it will be on disk. Pure, so that a re-run with the same answers is the same bytes."""

from __future__ import annotations

import os
from collections.abc import Sequence

from flodl_cli.join_config import farm as farms
from flodl_cli.join_config.cloud_init import cloud_init
from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.files import SECRET, Change
from flodl_cli.join_config.key_line import key_line
from flodl_cli.join_config.key_pair import Pair
from flodl_cli.join_config.notes import notes
from flodl_cli.join_config.sshd_dropin import dropin, standing_ports
from flodl_cli.join_config.steps import Step
from flodl_cli.join_config.unit import unit
from flodl_cli.join_config.worker_block import worker_yml


def render(
    farm: Farm, pair: Pair, retired: Sequence[str], found: Sequence[Step], facts: Facts, *, with_cloud_init: bool
) -> list[Change]:
    """Without the overlay. The key goes last but one, worker.yml last: it is what a farm is recognised by."""
    folder = farms.folder(farm.root, farm.label)

    def change(name: str, text: str, mode: int = 0o644) -> Change:
        return Change(os.path.join(folder, name), text.encode(), mode)

    made = [
        change(".gitignore", "*\n"),
        change("authorized_keys", key_line(farm) + "\n"),
        change(farm.unit_name, unit(farm)),
        change("install-notes.md", notes(farm, found)),
    ]
    if farm.guarded:
        made.append(change(farm.dropin_name, dropin(farm, standing_ports(facts))))
    if with_cloud_init:
        made.append(change("cloud-init.yml", cloud_init(farm, pair.private), SECRET))
    if retired:
        made.append(change("keys/retired.pub", "".join(f"ssh-ed25519 {blob} retired\n" for blob in retired)))
    return [
        *made,
        change("keys/join_key.pub", pair.public + "\n"),
        change("keys/join_key", pair.private, SECRET),
        change("worker.yml", worker_yml(farm), SECRET),
    ]


def stale(farm: Farm, changes: Sequence[Change]) -> list[str]:
    """Files of an earlier shape of the farm that this one does not have; a snippet among them holds a token."""
    written = {change.path for change in changes}
    folder = farms.folder(farm.root, farm.label)
    paths = (os.path.join(folder, name) for name in (farm.dropin_name, "overlay-snippet.yml"))
    return [path for path in paths if path not in written and os.path.exists(path)]
