"""`install-notes.md` of a farm: what its files are, the steps, and what the door holds. Pure; no secret in it."""

from __future__ import annotations

from collections.abc import Sequence

from flodl_cli.join_config.farm import DOORS, Farm
from flodl_cli.join_config.steps import Step

NOTES = """\
The farm {label}: door {door} at {controller}. Written by `fdl join-config {label}`, which writes it again.

| file | what it is | where it goes |
|---|---|---|
| `keys/join_key` | **secret**: the private key of every worker | workers, as `{worker_key}`, mode 600 |
| `keys/join_key.pub` | its public half | in the line below |
| `authorized_keys` | the one line that lets it in | `~{user}/.ssh/authorized_keys` of the controller |
| `{dropin}` | {guard} | `/etc/ssh/sshd_config.d/` of the controller |
| `worker.yml` | **secret** (it holds the token): a worker's `fdl.yml` | the worker's project folder |
| `{unit}` | the worker as a systemd service | `/etc/systemd/system/` of a worker |
| `cloud-init.yml` | **secret**: a worker as an instance; by `--cloud-init` | the provider's user-data |

`../../fdl.{label}.yml`, the overlay, holds the token too.

## The door

{door_line}. Whatever comes with this key gets a forward to the run's port and what its door
gives, no shell, no other port, no terminal. `fdl join-config {label} --test` tries it.

- `restrict` and `command=` in the key's line hold wherever sshd takes that line from; the drop-in holds for every
  key that comes in by port {port}, whatever its line says. Each is a wall of its own.
- No `ForceCommand` for the doors a and b: it would overrule the command in the key's line.
- A dedicated account without a shell is a further wall: make one, run the wizard with
  `--controller NAME@{host}:{port}`, and put the line into its `authorized_keys` with `--authorized-keys`.

## Steps

{steps}

## A farm begun anew

`fdl join-config {label} --regen` makes another key and another token. Workers that hold the old ones are no longer
admitted; the old line goes from `authorized_keys` when the new one is installed. An instance's user-data must be
replaced.
"""


def notes(farm: Farm, found: Sequence[Step]) -> str:
    text = "\n\n".join(
        f"{number}. {step.title}\n\n" + "\n".join(f"       {line}" for line in step.commands)
        for number, step in enumerate(found, 1)
    )
    return NOTES.format(
        label=farm.label,
        door=farm.door,
        door_line=f"Door {farm.door}: {DOORS[farm.door]}",
        controller=farm.controller,
        user=farm.controller.user,
        host=farm.controller.host,
        port=farm.controller.port,
        worker_key=farm.worker_key,
        dropin=farm.dropin_name if farm.guarded else "(no drop-in)",
        guard="what sshd holds the door's port to" if farm.guarded else "port 22 stays everybody's",
        unit=farm.unit_name,
        steps=text,
    )
