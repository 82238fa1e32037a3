"""The `join:` block of a merged config, validated, with the file and line of what is wrong."""

from __future__ import annotations

from flodl_cli.cluster_block import placed, plain
from flodl_cli.node import Node
from flodl_cli.values import check_keys
from flodl_wire.config import Ssh
from flodl_wire.faults import Refused
from flodl_wire.join_block import JoinBlock, parse_join


def parse(node: Node) -> object:
    """The block as the tool reads it. Raises Refused naming file, line and path of the first wrong key."""
    if isinstance(node.value, dict):
        check_keys(node, JoinBlock.__struct_fields__, "join")
        ssh = node.get("ssh")
        if ssh is not None and isinstance(ssh.value, dict):
            check_keys(ssh, Ssh.__struct_fields__, "join.ssh")
    written = plain(node)
    try:
        parse_join(written)
    except Refused as fault:
        raise placed(fault, node) from None
    return written
