"""The fan-out as our child: its spec on stdin (it holds the salt, so never on a command line), its events on stdout."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec

from flodl_window.child import Child
from flodl_window.formation import Charter
from flodl_window.roster import RosterHost
from flodl_wire import environ
from flodl_wire.specs import AgentSpec, FanoutEvent, FanoutHost, FanoutSpec

PASSED_ON = (environ.NET_TIMEOUT_SCALE, environ.VERBOSITY, environ.FDL_ENV)


def spec_of(charter: Charter) -> FanoutSpec:
    """One agent per host of the roster."""
    return FanoutSpec([_host(charter, host) for host in charter.roster], os.environ.get(environ.HOST_USER) or None)


def _host(charter: Charter, host: RosterHost) -> FanoutHost:
    worker = host.worker
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env[environ.HOST_NAME] = host.host
    agent = AgentSpec(
        host=host.host,
        controller_host="127.0.0.1" if host.inside or worker.tunnel else charter.controller_host,
        controller_port=charter.controller_port,  # through a tunnel: the fan-out puts the port it was given there
        salt_hex=charter.salt_hex,
        local_devices=host.devices,
        data_path=worker.data_path,
        gpu_ram_share=worker.gpu_ram_share,
        libtorch=worker.arch or "",
        path=worker.path,
        manifest_hash=charter.cohort.manifest_hash or None,
        roster_host=True,
        site=charter.sites.get(host.host),
    )
    pairs = os.environ.get(environ.CLUSTER_EXTRA_HOSTS, "").split() if worker.docker else []
    tunnel = charter.controller_port if worker.tunnel else None
    return FanoutHost(agent, host.local, worker.ssh, env, tunnel, worker.docker or "", pairs)


def start(
    command: list[str],
    charter: Charter,
    heard: Callable[[FanoutEvent], None],
    said: Callable[[str], None],
    ended: Callable[[str], None],
) -> Child:
    """Start it. `heard` gets its events, `said` what it prints besides, `ended` how it went."""

    def line(stream: str, text: str) -> None:
        if stream == "err":
            said(text)
            return
        try:
            event = msgspec.json.decode(text, type=FanoutEvent)
        except msgspec.MsgspecError:
            said(text)
            return
        heard(event)

    return Child(
        command,
        line=line,
        ended=ended,
        first_line=msgspec.json.encode(spec_of(charter)) + b"\n",
        keep_stdin=True,
    )
