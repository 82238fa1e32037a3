"""The `cluster:` block of a merged config, validated, with the file and line of what is wrong."""

from __future__ import annotations

import re

from flodl_cli.node import Node
from flodl_cli.values import check_keys, wrong
from flodl_wire.config import Cluster, Controller, JoinWindow, Ssh, Worker, parse_cluster
from flodl_wire.config_refusal import MOVED
from flodl_wire.faults import Refused


def parse(node: Node) -> Cluster:
    """The cluster in `node`. Raises Refused naming file, line and path of the first wrong key."""
    _check_known(node, Cluster, "cluster")
    _check_known(_child(node, "controller"), Controller, "cluster.controller")
    _check_known(_child(_child(node, "controller"), "join"), JoinWindow, "cluster.controller.join")
    workers = _child(node, "workers")
    for index, worker in enumerate(workers.value if workers is not None and isinstance(workers.value, list) else []):
        _check_known(worker, Worker, f"cluster.workers[{index}]")
        _check_known(_child(worker, "ssh"), Ssh, f"cluster.workers[{index}].ssh")
    try:
        return parse_cluster(plain(node))
    except Refused as fault:
        raise placed(fault, node) from None


def _child(node: Node | None, key: str) -> Node | None:
    return None if node is None else node.get(key)


def _check_known(node: Node | None, struct: type[Cluster | Controller | JoinWindow | Worker | Ssh], where: str) -> None:
    if node is None or not isinstance(node.value, dict):
        return
    known = struct.__struct_fields__
    for key, child in node.value.items():
        if key in MOVED and key not in known:
            raise wrong(child, f"{where}.{key}", "it is the key of an older format", f"write it as {MOVED[key]}")
        if key == "ranks" and struct is Worker:
            return  # parse_cluster says why
    check_keys(node, known, where)


def plain(node: Node) -> object:
    """Without the keys that were left empty (`join:` with nothing below it): they mean the default."""
    if isinstance(node.value, dict):
        return {key: plain(child) for key, child in node.value.items() if child.value is not None}
    if isinstance(node.value, list):
        return [plain(child) for child in node.value]
    return node.value


def placed(fault: Refused, root: Node) -> Refused:
    """The same fault with file and line before its path, and how to quote a value that YAML did not read as text."""
    what = re.match(r"cannot (use|read) ((?:cluster|join)(?:[.\[][^:]*)?)(: .*)?\Z", fault.what, re.DOTALL)
    if what is None:
        return fault
    node = _at(root, what[2])
    why, fix = fault.why, fault.fix
    if what[2].endswith(".env") and not isinstance(node.value, dict):
        fix = "write one `NAME: value` a line below it"
    fix = fix or "docs/manifest.md lists every key and what it takes"
    return Refused(fault.code, f"cannot {what[1]} {node.place()} {what[2]}{what[3] or ''}", why, fix)


def _at(node: Node, path: str) -> Node:
    """The node at `path` ("cluster.workers[0].env.X"), or the deepest one on the way there."""
    for step in re.findall(r"[^.\[\]]+", path)[1:]:
        if isinstance(node.value, dict) and step in node.value:
            node = node.value[step]
        elif isinstance(node.value, list) and step.isdigit() and int(step) < len(node.value):
            node = node.value[int(step)]
        else:
            break
    return node
