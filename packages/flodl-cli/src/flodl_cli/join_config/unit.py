"""The systemd unit that makes a worker of a box that boots. Pure.

It is paired with `persist: true`: only what no later try can mend ends `fdl join` with 2.
"""

from __future__ import annotations

from flodl_cli.join_config.farm import Farm

USER = "flodl"
HOME = "/srv/flodl"
VENV = "/opt/flodl"

UNIT = """\
[Unit]
Description=flodl walk-in of the farm {label}
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0
# A box that cannot take part (exit 2: no GPU, no program, a broken block) takes itself off the bill. Delete this line
# on a box that has other things to do:
FailureAction=poweroff

[Service]
User={user}
WorkingDirectory={home}/{label}
ExecStart={venv}/bin/fdl join --persist
Restart=always
RestartSec=5
RestartPreventExitStatus=2
KillMode=mixed
TimeoutStopSec=30

[Install]
WantedBy=multi-user.target
"""


def unit(farm: Farm) -> str:
    return UNIT.format(label=farm.label, user=USER, home=HOME, venv=VENV)
