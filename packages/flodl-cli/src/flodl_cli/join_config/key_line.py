"""The farm's line in authorized_keys: what its key may do. Pure.

The options before the command are those that people know from guides: nothing, but forwards, to one port. With
`port-forwarding` also comes listening on this box (`ssh -R`), which no option takes back but one that allows it for a
port that no user can have.
"""

from __future__ import annotations

import shlex

from flodl_cli.join_config.farm import Farm


def command_of(farm: Farm) -> str:
    """What sshd runs, whatever the worker asks for."""
    if farm.door == "b":
        return f"{shlex.quote(farm.rrsync)} -ro {shlex.quote(farm.served)}"
    if farm.door == "a":  # sshd cuts this line at spaces and knows no quotes; -d only saves a worker the path
        start = f" -d {farm.data}" if shlex.quote(farm.data) == farm.data else ""
        return "internal-sftp -R" + start
    return farm.nologin


def key_line(farm: Farm) -> str:
    """One line, no end."""
    command = command_of(farm).replace('"', '\\"')
    options = (
        f'restrict,port-forwarding,permitopen="127.0.0.1:{farm.run_port}",command="{command}",'
        'permitlisten="127.0.0.1:1"'
    )
    return f"{options} {farm.public_key}"


def blob_of(public_key: str) -> str:
    """The key material of a public key's line: what makes a line of authorized_keys ours."""
    words = public_key.split()
    return words[1] if len(words) > 1 else ""
