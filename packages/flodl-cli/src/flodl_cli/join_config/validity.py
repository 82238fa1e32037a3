"""What the wizard writes goes through our own loader before it is written: a config that cannot run is our mistake."""

from __future__ import annotations

from collections.abc import Sequence

import yaml

from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.files import Change
from flodl_wire.config import parse_cluster
from flodl_wire.faults import Broken, Fault
from flodl_wire.join_block import parse_join


def check_overlay(text: str, farm: Farm) -> None:
    """Raises Broken when a scaffolded overlay would be refused."""
    try:
        document = yaml.safe_load(text)
        found = parse_cluster(document["cluster"])
        right = found.controller.path == farm.root and found.controller.host == farm.controller.host
    except (Fault, yaml.YAMLError) as err:
        raise _broken(f"fdl.{farm.label}.yml", str(err)) from None
    if not right:
        raise _broken(f"fdl.{farm.label}.yml", "it is not read back as it was meant")


def check_worker(changes: Sequence[Change]) -> None:
    """Raises Broken when a worker's block, or the YAML around one, would be refused."""
    for change in changes:
        if not change.path.endswith(("worker.yml", "cloud-init.yml")):
            continue
        try:
            document = yaml.safe_load(change.data)
            if change.path.endswith("worker.yml"):
                parse_join(document["join"])
        except (Fault, yaml.YAMLError) as err:
            raise _broken(change.path, str(err)) from None


def _broken(name: str, why: str) -> Broken:
    return Broken("bad-output", f"cannot write {name}", f"our own loader refuses it: {why}", "please report this")
