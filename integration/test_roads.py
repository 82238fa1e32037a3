"""Roads as they are in life: several addresses, an inner network, something in between that cuts what is idle."""

from __future__ import annotations

import os
import socket
import sys

from integration.cluster import PORT, Cluster
from integration.conftest import Make
from integration.inner_network import INNER, hide
from integration.processes import of_role
from integration.project import rank_command
from integration.proxy import Proxy
from integration.running import Running
from integration.until import until
from integration.walk_in import PROGRAM, guarded_key, walk_in, walk_in_here
from tools.lab.host import sh

TRAIN = {"run": rank_command("plain_rank.py", "--epochs", "4"), "mode": "cpu_cadence"}
TOKEN = "5eed" * 8
USUAL = ("--token", TOKEN, "--bin", PROGRAM, "--devices", "cpu:1")


def opened(cluster: Cluster, host: str, **join: object) -> Running:
    """A window for two, `host` as the controller's address in the overlay."""
    window = {"discovery": True, "min_rank_start": 2, "target_ranks": 2, "token": TOKEN, **join}
    controller = {"host": host, "path": str(cluster.folder), "join": window}
    cluster.write({"train": TRAIN}, {"controller": controller})
    run = cluster.start("@cluster", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    return run


def test_what_a_worker_dials_is_what_its_relay_and_its_ranks_use(cluster: Cluster) -> None:
    """The controller has an address that leads nowhere from the workers, and its name says that one."""
    desk = cluster.lab.address("desk")
    sh("ip", "-n", cluster.lab.hosts["desk"].namespace, "addr", "add", "10.99.0.1/24", "dev", "lo")
    for host, other in (("tower", "attic"), ("attic", "tower")):
        net = cluster.lab.hosts[host].namespace
        sh("ip", "-n", net, "route", "add", "10.99.0.0/24", "via", cluster.lab.address(other))  # and no further
        table = cluster.lab.home(host) / "hosts"
        table.write_text(table.read_text().replace(f"{desk} desk", "10.99.0.1 desk"))
    run = opened(cluster, "0.0.0.0")
    walkers = [walk_in(cluster, host, desk, *USUAL) for host in ("tower", "attic")]
    state = run.done()
    assert {member.dialled for member in state.members} == {f"{desk}:1337"}
    assert [walker.wait() for walker in walkers] == [0, 0]


def test_a_number_is_dialled_and_shown_as_typed_whatever_name_it_has(cluster: Cluster) -> None:
    """The hosts file gives the controller's address a name, and that name another address. And the box's own name is
    asked of no program: theirs answer with nothing, or not at all.
    """
    desk = cluster.lab.address("desk")
    broken = cluster.lab.home("tower") / "hostname"
    broken.write_text("#!/bin/sh\nexit 139\n")
    broken.chmod(0o755)
    env = {"PATH": f"{broken.parent}:{os.environ['PATH']}"}
    for host in ("tower", "attic"):
        (cluster.lab.home(host) / "hosts").write_text(f"127.0.0.1 localhost\n{desk} ghost\n10.77.0.99 ghost\n")
    run = opened(cluster, desk)
    walkers = [walk_in(cluster, host, desk, *USUAL, env=env) for host in ("tower", "attic")]
    state = run.done()
    assert {member.dialled for member in state.members} == {f"{desk}:1337"}
    assert {member.host for member in state.members} == {"tower", "attic"}
    assert "ghost" not in "\n".join(walker.text for walker in walkers)


def test_a_box_behind_an_inner_network_trains_and_both_of_its_addresses_are_shown(cluster: Cluster) -> None:
    desk = cluster.lab.address("desk")
    run = opened(cluster, desk, start="manual", target_ranks=None)
    hide(cluster, "attic", behind := "tower", desk)
    assert cluster.lab.run("desk", "ping", "-c", "1", "-W", "1", INNER).returncode != 0
    walkers = [walk_in(cluster, host, desk, *USUAL) for host in ("desk", "attic")]
    run.phase("staging")
    shown = cluster.fdl("@cluster", "status").stdout
    assert f"direct {cluster.lab.address(behind)}" in shown and f"itself {INNER}" in shown, shown
    assert cluster.fdl("@cluster", "start").returncode == 0
    state = run.done()
    (hidden,) = [member for member in state.members if member.host == "attic"]
    assert (hidden.address, hidden.own_address) == (cluster.lab.address(behind), INNER)
    assert [walker.wait() for walker in walkers] == [0, 0]


def test_a_held_host_and_a_slow_batch_outlast_what_cuts_idle_links(project: Make) -> None:
    """Links are cut that say nothing for eight beats. The hold lasts three times that, a batch twice."""
    slow = {"run": rank_command("plain_rank.py", "--epochs", "1", "--samples", "16", "--batch-ms", "1500")}
    made = project(train={**slow, "mode": "cpu_cadence"})
    window = {"discovery": True, "min_rank_start": 2, "start": "manual"}
    controller = {"host": "127.0.0.1", "port": made.port, "path": str(made.folder), "join": window}
    made.write("fdl.farm.yml", {"cluster": {"controller": controller}})
    run = made.start("@farm", "train")
    until(lambda: run.state(), 30, lambda: run.text)
    proxy = Proxy(made.port, idle_s=0.8)
    try:
        walkers = [walk_in_here(made, host, f"127.0.0.1:{proxy.port}", "--bin", PROGRAM) for host in ("one", "two")]
        run.phase("staging")
        proxy.outwait(3)
        assert made.fdl("@farm", "start").returncode == 0
        state = run.done()
        assert proxy.cut >= 3, "it does cut"
    finally:
        proxy.close()
    assert (
        {member.host for member in state.members} == {"one", "two"}
        and "is out again" not in run.text
        and not state.degraded
    )
    assert [walker.wait() for walker in walkers] == [0, 0]


IDLE = """
import os, select, socket, sys
far = socket.create_connection((sys.argv[1], int(sys.argv[2])))
while ready := select.select([0, far], [], [], 0.8)[0]:
    for end in ready:
        data = os.read(0, 65536) if end == 0 else far.recv(65536)
        if not data:
            sys.exit()
        far.sendall(data) if end == 0 else os.write(1, data)
"""


def test_a_road_through_ssh_outlasts_an_idle_proxy_a_shared_master_and_its_own_end(cluster: Cluster) -> None:
    """The box's ssh config shares one connection, by a socket whose path is too long, and goes through a proxy that
    hangs up on who says nothing.
    """
    desk, home = cluster.lab.address("desk"), cluster.lab.home("attic")
    (home / "idle.py").write_text(IDLE)
    long = home / ("l" * 95)
    long.mkdir()
    config = f"ControlMaster auto\nControlPath {long}/%C\nProxyCommand {sys.executable} {home}/idle.py %h %p\n"
    (home / ".ssh/config").write_text(config)
    run = opened(cluster, desk, start="manual", target_ranks=None)
    walk_in(cluster, "tower", desk, *USUAL)
    key = guarded_key(cluster, "attic", PORT)
    env = {"TMPDIR": str(long), "XDG_RUNTIME_DIR": str(long)}
    walk_in(cluster, "attic", "--ssh", f"root@{desk}", "--identity", key, *USUAL, "--persist", env=env)
    run.phase("staging")
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        Proxy(deaf.getsockname()[1], idle_s=0.8).outwait(3)
    assert "is out again" not in run.text, run.text
    for ssh in of_role(cluster.on("attic"), "ssh"):
        ssh.kill()
    run.line("attic is out again")
    until(lambda: run.text.count("attic is in") == 2, 20, lambda: run.text)
    assert cluster.fdl("@cluster", "start").returncode == 0
    state = run.done()
    assert sorted(member.host for member in state.members) == ["attic", "tower"]
