"""One example of every message of every link: its required fields, with values that could stand there."""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
from msgspec import inspect

from flodl_wire import hub_messages, join_messages, messages, plane_messages

LINKS: dict[str, Any] = {
    "join, agent to window": join_messages.JoinUp,
    "join, window to agent": join_messages.JoinDown,
    "pair, launcher to hub": hub_messages.ToHub,
    "pair, hub to launcher": hub_messages.FromHub,
    "relay, relay to hub": plane_messages.RelayUp,
    "relay, hub to relay": plane_messages.RelayDown,
    "relay, rank to hub": plane_messages.RankUp,
    "relay, hub to rank": plane_messages.RankDown,
}

# Values by field, where the type alone would say nothing.
VALUES: dict[str, Any] = {
    "host": "node-a",
    "controller_host": "10.0.0.1",
    "controller_port": 1337,
    "port": 1337,
    "address": "10.0.0.2",
    "agent": "5f0c2a9be17d4c36",
    "instance": "c1b7d86f",
    "device": "cuda:0",
    "kind": "cuda",
    "head": "f10d1fd100010201",
    "ranks": [0, 1],
    "rank": 1,
    "local_rank": 1,
    "world_size": 3,
    "num_workers": 2,
    "mode": "cpu_cadence",
    "run": "20260301-101500-3f2a",
    "salt_hex": "000102030405060708090a0b0c0d0e0f",
    "argv": ["python", "train.py", "--lr", "0.1"],
    "lines": ["epoch 1, loss 0.25"],
    "weights": {"0": 0.25, "1": 0.75},
    "spans": [[0, 64]],
    "metrics": {"accuracy": 0.97},
    "body": msgspec.Raw(b'{"type":"leaving"}'),
    "local_devices": {"type": "gpu", "indices": [0, 1]},
}


def by_link() -> dict[str, Any]:
    """For docs/vectors/messages.json: link → type → body."""
    return {
        "rules": "W-30 to W-32",
        "links": {
            link: {str(member.__struct_config__.tag): example(member) for member in get_args(union)}
            for link, union in LINKS.items()
        },
    }


def example(kind: type[msgspec.Struct]) -> Any:
    """The message as plain JSON values."""
    message = msgspec.convert(_value(inspect.type_info(kind)), kind)
    return json.loads(messages.encode_message(message))


def _value(info: inspect.Type) -> Any:
    """A value of that type; of a struct its required fields alone."""
    if isinstance(info, inspect.StructType):
        values = {f.encode_name: VALUES.get(f.name, _value(f.type)) for f in info.fields if f.required}
        if info.array_like:
            return list(values.values())
        return {info.tag_field: info.tag, **values} if info.tag_field else values
    if isinstance(info, inspect.UnionType):
        return None if info.includes_none else _value(info.types[0])
    if isinstance(info, inspect.ListType):
        return [_value(info.item_type)]
    if isinstance(info, inspect.BoolType):
        return True
    if isinstance(info, inspect.IntType):
        return 2
    if isinstance(info, inspect.FloatType):
        return 0.5
    if isinstance(info, inspect.StrType):
        return "text"
    if isinstance(info, inspect.BytesType):
        return "dGV4dA=="  # base64, as JSON carries bytes
    return {}
