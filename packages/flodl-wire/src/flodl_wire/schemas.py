"""The documents and links whose shape is a contract, by name, for ``python -m flodl_wire schema NAME``."""

from __future__ import annotations

from typing import Any

import msgspec

from flodl_wire import config, hub_messages, join_messages, plane_messages, result, specs, state
from flodl_wire.faults import usage

SCHEMAS: dict[str, tuple[Any, str]] = {
    "cluster": (config.Cluster, "the cluster: block of fdl.yml, and what the launcher is handed"),
    "launch-config": (specs.LaunchConfig, "what fdl or --config hands the launcher"),
    "agent-spec": (specs.AgentSpec, "what makes a process an agent"),
    "relay-spec": (specs.RelaySpec, "what makes a process a relay"),
    "hub-spec": (specs.HubSpec, "stdin of flodl-planes hub"),
    "fanout-spec": (specs.FanoutSpec, "stdin of flodl-agent fanout"),
    "fanout-event": (specs.FanoutEvent, "a line of flodl-agent fanout's stdout"),
    "envelope": (specs.Envelope, "what a rank knows of its world"),
    "state": (state.State, "state.json"),
    "result": (result.RunResult, "result.json"),
    "join-up": (join_messages.JoinUp, "join link, agent to window"),
    "join-down": (join_messages.JoinDown, "join link, window to agent"),
    "hub-down": (hub_messages.ToHub, "the pair, launcher to hub"),
    "hub-up": (hub_messages.FromHub, "the pair, hub to launcher"),
    "relay-up": (plane_messages.RelayUp, "relay channel, relay to hub"),
    "relay-down": (plane_messages.RelayDown, "relay channel, hub to relay"),
    "rank-up": (plane_messages.RankUp, "inside the relay channel, rank to hub"),
    "rank-down": (plane_messages.RankDown, "inside the relay channel, hub or relay to rank"),
}


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema of `name`. Raises a usage fault that suggests a name."""
    if name not in SCHEMAS:
        import difflib

        close = difflib.get_close_matches(name, SCHEMAS, 1)
        raise usage(
            f"cannot print a schema of {name!r}",
            "there is none of that name",
            f"did you mean {close[0]}?" if close else f"names: {', '.join(SCHEMAS)}",
        )
    kind, _ = SCHEMAS[name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}
