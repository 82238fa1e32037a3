"""The farm's overlay, `fdl.<label>.yml`: scaffolded once, and afterwards the user's, but for its token. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.project import Seen
from flodl_cli.join_config.yaml_text import quoted, scalar
from flodl_cli.node import Node
from flodl_wire.config import TOKEN
from flodl_wire.faults import Refused

HEAD = """\
# The farm {label}, as `fdl join-config {label}` has begun it; yours to edit. The wizard touches the token again and
# nothing else. It holds a secret: keep it out of a repository that others read.
cluster:
  controller:
    host: {host}
    path: {root}
    join:
      discovery: true           # no roster: whoever comes through the door with the token is in
      tunnel_only: true         # the run's port stays on loopback; the door's sshd is the only way to it
      min_rank_start: 2         # ranks needed at least
      start: manual             # the roster is held until `fdl @{label} start`
      max_join_timeout: 86400   # seconds after which a window that nobody has started is given up
      token: {token}
"""

PUBLISH = """\

publish:                        # what `fdl @{label} publish` puts where workers pull it
  source: {source}
  bin: {program}
"""

PUBLISH_UNSURE = """\

# publish:                      # what `fdl @{label} publish` puts where workers pull it: fill in your script
#   source: {source}
#   bin: train.py
"""

COMMAND = """\

commands:
  {name}:{run}
    cluster: true               # this is what opens the window
"""

COMMAND_UNSURE = """\

# A window only opens for a command that is `cluster: true`.{there}
# Another one would look like this:
# commands:
#   train:
#     run: python train.py
#     cluster: true
"""


def command_name(seen: Seen) -> str:
    """The command by which the farm's window is opened; "" when nothing is sure."""
    if seen.name and (seen.name_is_command or seen.runs):
        return seen.name
    return seen.windows[0] if seen.windows else ""


def scaffold(farm: Farm, seen: Seen) -> str:
    """A new overlay."""
    text = HEAD.format(
        label=farm.label, host=quoted(farm.controller.host), root=quoted(farm.root), token=quoted(farm.token)
    )
    source = quoted(f"file://{farm.root}")
    if farm.door == "b":
        form = PUBLISH if seen.program else PUBLISH_UNSURE
        text += form.format(label=farm.label, source=source, program=scalar(seen.program))
    if seen.name and (seen.name_is_command or seen.runs):
        run = "" if seen.name_is_command else f"\n    run: {scalar(seen.runs) if ' ' not in seen.runs else seen.runs}"
        return text + COMMAND.format(name=scalar(seen.name), run=run)
    named = ", ".join(f"`fdl @{farm.label} {name}`" for name in seen.windows)
    return text + COMMAND_UNSURE.format(there=f" This project has {named}." if named else "")


@dataclass(frozen=True)
class Written:
    """An overlay that is there. `token` "" when neither it nor what it inherits from has one."""

    text: str
    token: str = ""
    in_file: bool = False  # the token stands in the overlay itself
    place: str = ""  # file:line of the token
    line: int = 0


def written(text: str, document: Node, merged: Node, shown: str) -> Written:
    """What of the token is in an overlay: `document` is the file, `merged` the project with it. Raises Refused."""
    node = _token(merged)
    if node is None:
        return Written(text)
    if not isinstance(node.value, str) or not TOKEN.match(node.value):
        raise Refused(
            "bad-token",
            f"cannot use {node.place()} cluster.controller.join.token",
            "it is not 32 lowercase hex digits in quotes",
            "delete the line and run this again, or put one in: openssl rand -hex 16",
        )
    own = _token(document)
    return Written(text, node.value, own is not None and own.value == node.value, node.place(), node.line)


def with_token(there: Written, token: str) -> str:
    """The overlay with another token, every other byte as it was. Raises Refused when the token is not its own."""
    if not there.in_file:
        raise Refused(
            "foreign-token",
            "cannot rotate the token",
            f"it stands in {there.place}, from which the overlay inherits",
            "give the overlay a token of its own first",
        )
    lines = there.text.splitlines(keepends=True)
    where = there.line - 1
    if 0 <= where < len(lines) and lines[where].count(there.token) == 1:
        lines[where] = lines[where].replace(there.token, token)
        return "".join(lines)
    if there.text.count(there.token) == 1:  # JSON, an anchor, a value on the next line
        return there.text.replace(there.token, token)
    raise Refused(
        "foreign-token",
        "cannot rotate the token",
        f"it stands more than once in {there.place}, and which of them counts is not for a wizard to say",
        "keep one of them",
    )


def snippet(farm: Farm) -> str:
    """For an overlay of the user's own that has no token: what belongs into it."""
    head = HEAD.format(
        label=farm.label, host=quoted(farm.controller.host), root=quoted(farm.root), token=quoted(farm.token)
    )
    return re.sub(r"\A(#.*\n)+", f"# Belongs into fdl.{farm.label}.yml; it holds a secret.\n", head)


def _token(config: Node) -> Node | None:
    node: Node | None = config
    for key in ("cluster", "controller", "join", "token"):
        node = node.get(key) if node is not None else None
    return node
