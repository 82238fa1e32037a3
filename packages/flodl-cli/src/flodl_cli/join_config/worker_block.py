"""The `fdl.yml` of a worker: a `join:` block with all it needs to walk in. Pure."""

from __future__ import annotations

from flodl_cli.join_config.farm import DEFAULT_DATA, Farm
from flodl_cli.join_config.yaml_text import quoted, scalar

HEAD = """\
# fdl.yml of a worker of the farm {label}, written by `fdl join-config {label}` on the controller, which writes it
# again: what you add belongs into the worker's copy. It holds a secret; keep it readable for its owner alone.
join:
  ssh:
    target: {target}
    port: {port}
    user: {user}
    identity_file: {key}
  token: {token}
"""

SOURCE = """\
  # What to run comes from the controller (`fdl @{label} publish`), with its arguments:
  source:
    from: {spec}
  # libtorch: auto        # fetch the torch build for this box's GPUs; left out: the torch of flodl's own environment
"""

PROGRAM = """\
  bin: {program:<16}# the program, in this folder; its arguments come from the controller
"""

DATA = """\
  data_path: {path}
  data_source: {spec}
"""

TAIL = """\
  # devices: cpu:2        # left out: every GPU; a box without one says how many ranks its processor gives
  persist: true           # dial again after each run, and until there is one
"""


def worker_yml(farm: Farm) -> str:
    at = farm.controller
    text = HEAD.format(
        label=farm.label,
        target=quoted(at.host),
        port=at.port,
        user=quoted(at.user),
        key=scalar(farm.worker_key),
        token=quoted(farm.token),
    )
    if farm.door == "b":
        text += SOURCE.format(label=farm.label, spec=quoted(f"rsync://{at.place}:/tree"))
    else:
        text += PROGRAM.format(program=scalar(farm.program))
    if farm.door == "a":
        text += DATA.format(path=DEFAULT_DATA, spec=quoted(f"sshfs://{at.place}:{farm.data}"))
    return text + TAIL
