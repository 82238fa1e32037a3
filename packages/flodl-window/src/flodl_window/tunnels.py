"""Which hosts come through the fan-out's own ssh session (``tunnel: true``), and every refusal around them.

The session asks for a remote forward and the agent dials that: nothing crosses the network but ssh, and when nobody
comes another way the port is bound to loopback. What NCCL and torch.distributed move goes from rank to rank and past
any tunnel. The forward's far end is open to every user of that host, so there the salt is always asked for.
"""

from __future__ import annotations

from flodl_window import knobs, modes
from flodl_window.roster import RosterHost
from flodl_wire.config import Cluster, JoinWindow
from flodl_wire.faults import Refused


def check(cluster: Cluster, hosts: list[RosterHost], mode: str, *, fanout: bool) -> None:
    """Raise Refused for a tunnel that cannot be."""
    join = cluster.controller.join or JoinWindow()
    for index, host in enumerate(hosts):
        key = f"cluster.workers[{index}].tunnel"
        if not host.worker.tunnel:
            if join.tunnel_only and not host.local:
                raise _refuse(
                    key,
                    f"controller.join.tunnel_only binds the port to loopback, and {host.host} would come over the net",
                    "set tunnel: true on that host, or delete tunnel_only",
                )
            continue
        if host.local:
            raise _refuse(key, f"{host.host} is this very box, and no ssh leads to it", "delete the key")
        if mode not in modes.CPU_MODES:
            what = "torch.distributed moves" if mode == modes.TORCH else f"mode {mode} moves"
            raise _refuse(
                key,
                f"{what} tensors from rank to rank, past any tunnel",
                "use a cpu mode, e.g. --mode cpu_cadence, or delete the key",
            )
        if not fanout:
            raise _refuse(
                key,
                "a tunnel is part of the ssh session that starts an agent, and here agents dial in by themselves",
                "use flodl-window launch (fdl does), or delete the key and let that host run fdl join --ssh",
            )
        if join.open_admission:
            raise _refuse(
                key,
                f"it opens a door to every user of {host.host}, and controller.join.open_admission asks for no salt",
                "delete one of the two",
            )
        if join.token is None and (join.discovery or join.start != "auto"):
            other = "discovery" if join.discovery else "start"
            raise _refuse(
                key,
                f"it opens a door to every user of {host.host}, and with controller.join.{other} loopback alone would "
                "be the credential",
                "set controller.join.token (make one with: openssl rand -hex 16)",
            )


def loopback_only(cluster: Cluster, hosts: list[RosterHost]) -> bool:
    """True when nobody comes from another box except through a tunnel: the port is bound to loopback."""
    join = cluster.controller.join or JoinWindow()
    if join.tunnel_only:
        return True
    if knobs.asks_for_walk_ins(cluster):
        return False
    return bool(hosts) and all(host.inside or host.worker.tunnel for host in hosts)


def _refuse(key: str, why: str, fix: str) -> Refused:
    return Refused("bad-tunnel", f"cannot use {key}", why, fix)
