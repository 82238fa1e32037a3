"""What sshd itself holds to at the door's own port, as a file for sshd_config.d. Pure.

By port, not by user: every key that comes in there is confined, also one added later, and port 22 stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import SSH_PORT, Farm


def dropin(farm: Farm, ports: Sequence[int]) -> str:
    """`ports`: those that sshd listens on now without any file of its configuration saying so (22, mostly).

    They must be said along with ours, or sshd would listen on ours alone.
    """
    lines = [
        f'# The door of the flodl farm "{farm.label}", written by `fdl join-config {farm.label}`.',
        "# Port lines add up, and the first one takes the default away: so those in use are named as well.",
        *(f"Port {port}" for port in sorted({*ports, farm.controller.port})),
        "",
        f"Match LocalPort {farm.controller.port}",
        f"    AllowUsers {farm.controller.user}",
        "    AuthenticationMethods publickey",
        "    # -L to the run's port, and nothing else: no -R, no Unix sockets, no agent, no X11",
        "    AllowTcpForwarding local",
        f"    PermitOpen 127.0.0.1:{farm.run_port}",
        "    PermitListen none",
        "    AllowStreamLocalForwarding no",
        "    AllowAgentForwarding no",
        "    X11Forwarding no",
        "    PermitTunnel no",
        "    GatewayPorts no",
        "    PermitTTY no",
        "    PermitUserRC no",
    ]
    if farm.door == "nologin":
        lines.append(f"    ForceCommand {farm.nologin}")
    else:
        lines.append(
            "    # no ForceCommand: it would overrule the command in the key's own line, which this door needs"
        )
    if farm.door == "a":
        lines += [
            f"    # The key reads whatever {farm.controller.user} may read. Where every folder above the data belongs",
            "    # to root, this line keeps it inside (data_source in worker.yml then ends in `:/`):",
            f"    # ChrootDirectory {farm.data}",
        ]
    return "\n".join([*lines, "Match all", ""])


def standing_ports(facts: Facts) -> list[int]:
    """What sshd listens on by default, and would leave as soon as a file names a port."""
    return [] if facts.config_ports else [SSH_PORT]
