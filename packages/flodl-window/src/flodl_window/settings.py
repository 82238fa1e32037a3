"""From what fdl (or a file) hands us to a charter: everything that can be refused is refused here, before anything
starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from flodl_window import knobs, modes, roster, tunnels
from flodl_window.cohort import Cohort
from flodl_window.formation import Charter
from flodl_window.port import EVERY_ADDRESS
from flodl_window.words import listed
from flodl_wire import blob, deadlines, entry_words, environ
from flodl_wire.config import Cluster, JoinWindow, check_cluster, parse_cluster
from flodl_wire.faults import Refused
from flodl_wire.served_runs import served_folder
from flodl_wire.specs import LaunchConfig, Site


@dataclass
class Settings:
    """What the launcher was asked to do. `notes` are lines worth saying at the start."""

    cluster: Cluster
    mode: str
    argv: list[str]
    fanout: bool
    manifest_hash: str
    env: dict[str, str]
    cwd: str
    sites: dict[str, Site]
    roster: list[roster.RosterHost]
    notes: list[str]
    served: Path | None = None  # where this box publishes to

    @property
    def loopback_only(self) -> bool:
        """True when the port is bound to loopback: the roster is here or tunnelled, and walk-ins come through tunnels,
        if at all.
        """
        return tunnels.loopback_only(self.cluster, self.roster)


def read_config(file: str | None) -> LaunchConfig:
    """The config from ``--config FILE`` or ``-``, else from the environment. Raises Refused."""
    if file is not None:
        return _from_file(file)
    text = os.environ.get(environ.CONFIG_JSON)
    if text:
        config = blob.decode(text, LaunchConfig, environ.CONFIG_JSON)
        if config.cluster is not None:
            check_cluster(config.cluster)
        return config
    text = os.environ.get(environ.FULL_CLUSTER_JSON)
    if text:
        cluster = blob.decode(text, Cluster, environ.FULL_CLUSTER_JSON)
        check_cluster(cluster)
        return LaunchConfig(cluster)
    raise Refused(
        "no-config",
        "cannot open a window",
        "nobody said for which cluster",
        "run it through fdl, or pass --config FILE.json (fdl config show --json prints one)",
    )


def _from_file(file: str) -> LaunchConfig:
    what = "cannot read --config -" if file == "-" else f"cannot read --config {file}"
    try:
        data: Any = json.loads(sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes())
    except OSError as err:
        raise Refused("no-config", what, err.strerror or str(err)) from None
    except ValueError as err:
        raise Refused(
            "bad-config", what, f"it is no JSON: {err}", "fdl config show --json prints what belongs there"
        ) from None
    if not isinstance(data, dict) or not isinstance(data.get("cluster"), dict):
        raise Refused(
            "bad-config", what, "it holds no cluster block", "fdl config show --json prints what belongs there"
        )
    rest = {key: data[key] for key in ("mode", "manifest", "env", "cwd") if key in data}
    try:
        config = msgspec.convert(rest, LaunchConfig)
    except msgspec.ValidationError as err:
        raise Refused("bad-config", what, str(err), "fdl config show --json prints what belongs there") from None
    config.cluster = parse_cluster(data["cluster"])
    to = data["publish"].get("to") if isinstance(data.get("publish"), dict) else None
    config.served = to if isinstance(to, str) else ""
    for name in config.env:
        if not environ.is_valid_name(name) or environ.is_reserved(name):
            why = "it is no name of a variable" if not environ.is_valid_name(name) else "flodl sets it itself"
            raise Refused("reserved-env", f"cannot use env.{name} in {file}", why, "delete it")
    return config


def settle(config: LaunchConfig, mode: str | None, argv: list[str], *, fanout: bool) -> Settings:
    """Check everything that needs no port. Raises Refused."""
    deadlines.scale()
    cluster = config.cluster
    if cluster is None:
        raise Refused(
            "no-cluster", "cannot open a window", "the config has no cluster block", "add cluster: to fdl.yml"
        )
    hosts = roster.read_roster(cluster, roster.this_host())
    chosen, note = modes.choose(mode or os.environ.get(environ.MODE) or config.mode, cluster)
    tunnels.check(cluster, hosts, chosen, fanout=fanout)
    notes = [note] if note else []
    afar = [host.host for host in hosts if not host.local and not host.worker.tunnel]
    if fanout and afar and cluster.controller.host in EVERY_ADDRESS:
        raise Refused(
            "no-address",
            f"cannot use cluster.controller.host: {cluster.controller.host}",
            f"{listed(afar)} will be told to dial it, and it names no box",
            "set it to the address of this box that they reach",
        )
    if fanout and afar and cluster.controller.host in roster.LOOPBACK_NAMES:
        who, they = ("itself", "it reaches") if len(afar) == 1 else ("themselves", "they reach")
        here = f"{cluster.controller.host}, which is {who}"
        notes.append(f"{listed(afar)} will dial {here}: set controller.host to an address {they}")
    contained = [host.host for host in hosts if host.local and host.worker.docker]
    if fanout and contained and cluster.controller.host in roster.LOOPBACK_NAMES:
        who = f"the container of {listed(contained)} dials {cluster.controller.host}"
        notes.append(f"{who}: its service needs `network_mode: host`, or controller.host an address it reaches")
    made = Settings(
        cluster, chosen, argv, fanout, _hash(config.manifest), config.env, config.cwd, config.sites, hosts, notes
    )
    made.served = served_folder(config.served, str(Path(config.manifest).parent) if config.manifest else ".")
    return made


def _hash(manifest: str | None) -> str:
    """sha256 of the project's fdl.yml; "" when there is none to compare."""
    try:
        return hashlib.sha256(Path(manifest).read_bytes()).hexdigest() if manifest else ""
    except OSError:
        return ""


def charter(settings: Settings, run: str, port: int, loopback: bool) -> Charter:
    """The run's charter once the port is bound. Raises Refused for knobs that contradict each other."""
    cluster = settings.cluster
    join = cluster.controller.join or JoinWindow()
    resolved = knobs.resolve(cluster, settings.mode, fanout=settings.fanout, loopback=loopback)
    cohort = Cohort(
        nccl=modes.is_nccl(settings.mode),
        mode=settings.mode,
        manifest_hash=settings.manifest_hash,
        args=entry_words.split(settings.argv).args,
    )
    return Charter(
        run=run,
        mode=settings.mode,
        argv=settings.argv,
        roster=settings.roster,
        knobs=resolved,
        salt_hex=join.token or secrets.token_hex(16),
        instance=secrets.token_hex(16),
        controller_host=cluster.controller.host,
        controller_port=port,
        cohort=cohort,
        env={**cluster.env, **settings.env},
        cwd=settings.cwd,
        sites=settings.sites,
        gpu_ram_share=cluster.gpu_ram_share,
        fanout=settings.fanout and bool(settings.roster),
        served=settings.served,
    )
