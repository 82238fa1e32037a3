"""`fdl @cluster probe` over three hosts with real sshds: green, and each way in which one host is not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.cluster import PORT, Cluster, three
from integration.project import BIN
from tools.lab import Lab

PROBE = BIN / "flodl-probe"
PLENTY = "60"  # seconds a host may take: three Pythons start at once here
SMI = """#!/bin/sh
case "$1" in
--query-gpu=index*) echo "0, GPU-0000-{host}, 00000000:01:00.0, NVIDIA Test, 9.0, 16311" ;;
*) exit 0 ;;
esac
"""
NCCL_SOURCE = "int ncclGetVersion(int* v) {{ *v = {code}; return 0; }}\n"


@pytest.fixture(scope="module")
def lab_cluster(lab_possible: None) -> Iterator[Cluster]:
    """One lab for all tests here: a probe leaves nothing behind, which is tested too."""
    with Lab(three()) as lab:
        hosts = Cluster(lab)
        hosts.write({"train": {"run": "true"}})
        yield hosts
        hosts.end()


@pytest.fixture
def hosts(lab_cluster: Cluster) -> Iterator[Cluster]:
    lab_cluster.write({"train": {"run": "true"}})
    yield lab_cluster
    for host in ("tower", "attic"):
        lab_cluster.lab.heal(host)
        for name in (".bashrc", ".profile"):
            (lab_cluster.lab.home(host) / name).unlink(missing_ok=True)


def probe(hosts: Cluster, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    fdl = hosts.folder / ".venv/bin/fdl"
    patience = () if "--timeout" in words else ("--timeout", PLENTY)
    done = hosts.lab.run("desk", fdl, "@cluster", "probe", *patience, *words, cwd=hosts.folder, timeout=99, env=env)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def rows(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, Any]]:
    assert done.stdout.count("\n") == 1, done.stdout  # one document and nothing else
    return {host["host"]: host for host in json.loads(done.stdout)["hosts"]}


def levels(host: dict[str, Any]) -> dict[str, str]:
    """check -> its worst level."""
    order = ("ok", "warning", "error")
    found: dict[str, str] = {}
    for finding in host["findings"]:
        found[finding["check"]] = max(found.get(finding["check"], "ok"), finding["level"], key=order.index)
    return found


def test_a_fleet_in_order_is_green_in_few_words(hosts: Cluster) -> None:
    before = files(hosts)
    done = probe(hosts)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["HOST", "desk", "tower", "attic"], done.stdout
    assert all(" ok " in line for line in lines[1:]), done.stdout
    assert files(hosts) == before  # it never writes


def files(hosts: Cluster) -> set[str]:
    homes = [hosts.lab.home(host) for host in hosts.folders]  # the projects lie in them
    return {str(path) for home in homes for path in home.rglob("*") if not {"__pycache__", ".venv"} & {*path.parts}}


def test_each_host_walks_the_whole_way_to_the_port_before_any_run(hosts: Cluster) -> None:
    found = rows(probe(hosts, "--json"))
    for host in ("tower", "attic"):
        road = found[host]["road"]
        assert (road["answer"], road["bulk"], road["interface"]) == ("probe", True, "eth0")
        assert abs(road["clock_offset"]) < 1 and levels(found[host])["clock"] == "ok"
    assert levels(found["desk"])["ports"] == "ok"


def test_the_document_holds_to_its_own_schema(hosts: Cluster) -> None:
    schema = json.loads(subprocess.run([PROBE, "schema"], capture_output=True, text=True, check=True).stdout)
    document = json.loads(probe(hosts, "--json").stdout)
    assert list(breaches(document, schema, schema["$defs"])) == []
    del document["hosts"][1]["findings"][0]["level"]
    document["hosts"][0]["seconds"] = "long"
    assert list(breaches(document, schema, schema["$defs"])) == ["$.hosts[0].seconds", "$.hosts[1].findings[0].level"]


TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "integer": (int,), "number": (int, float),
}  # fmt: skip


def breaches(value: Any, schema: dict[str, Any], defs: dict[str, Any], where: str = "$") -> Iterator[str]:
    """Where `value` breaks `schema`, for the keywords that this schema uses; another one is an error of ours."""
    assert not schema.keys() - {
        "$ref", "$defs", "$schema", "title", "description", "default", "type", "properties", "required",
        "additionalProperties", "items", "enum", "anyOf",
    }, schema.keys()  # fmt: skip
    if "$ref" in schema:
        yield from breaches(value, defs[schema["$ref"].rpartition("/")[2]], defs, where)
        return
    if "anyOf" in schema and all(any(breaches(value, one, defs)) for one in schema["anyOf"]):
        yield where
    wanted = schema.get("type")
    if wanted and (not isinstance(value, TYPES[wanted]) or (isinstance(value, bool) and wanted != "boolean")):
        yield where
        return
    if "enum" in schema and value not in schema["enum"]:
        yield where
    if isinstance(value, dict):
        yield from (f"{where}.{key}" for key in schema.get("required", []) if key not in value)
        others = schema.get("additionalProperties")
        for key, item in value.items():
            inner = schema.get("properties", {}).get(key, others)
            if isinstance(inner, dict):
                yield from breaches(item, inner, defs, f"{where}.{key}")
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from breaches(item, schema.get("items", {}), defs, f"{where}[{index}]")


def test_a_host_that_is_off_is_a_row_and_keeps_nobody_waiting(hosts: Cluster) -> None:
    hosts.lab.cut("attic")
    began = time.monotonic()
    done = probe(hosts, "--json", "--timeout", "12")
    took = time.monotonic() - began
    found = rows(done)
    assert done.returncode == 1 and took < 20
    assert (found["tower"]["level"], found["attic"]["reached"]) == ("ok", False)
    assert found["attic"]["findings"][0]["check"] == "reach" and found["attic"]["issues"]
    assert "attic" in probe(hosts, "--timeout", "5").stdout


def test_a_shell_that_prints_a_banner_is_read_all_the_same_and_named(hosts: Cluster) -> None:
    for name in (".bashrc", ".profile"):
        (hosts.lab.home("tower") / name).write_text('printf \'Welcome to {"host": "tower"}! \'\n')
    done = probe(hosts, "--json")
    found = rows(done)
    assert done.returncode == 0, done.stdout
    assert found["tower"]["reached"] and levels(found["tower"])["shell"] == "warning"
    assert "shell" not in levels(found["attic"])


def test_a_host_whose_ssh_takes_eight_seconds_is_waited_for(hosts: Cluster, tmp_path: Path) -> None:
    ssh = shutil.which("ssh")
    slow = tmp_path / "ssh"
    slow.write_text(f'#!/bin/sh\ncase "$*" in *attic*) sleep 8 ;; esac\nexec {ssh} "$@"\n')
    slow.chmod(0o755)
    done = probe(hosts, "--json", env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    found = rows(done)
    assert done.returncode == 0, done.stdout
    assert found["attic"]["reached"] and found["tower"]["seconds"] < 8


def test_hosts_with_another_nccl_are_told_apart_with_the_way_out(hosts: Cluster, tmp_path: Path) -> None:
    overlay = with_gpus(hosts, tmp_path, {"tower": 22705, "attic": 22809})
    hosts.write({"train": {"run": "true"}}, overlay)
    done = probe(hosts, "--json")
    told = {finding["check"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert "nccl-skew" in told, done.stdout
    skew = told["nccl-skew"]
    assert (done.returncode, skew["level"]) == (1, "error")
    assert "2.27 on tower" in skew["what"] and "2.28 on attic" in skew["what"] and "fdl nccl build" in skew["fix"]
    assert rows(done)["tower"]["nccl"]["version"] == "2.27.5"


def with_gpus(hosts: Cluster, folder: Path, nccl: dict[str, int]) -> dict[str, Any]:
    """An overlay in which both workers have a GPU by a stand-in nvidia-smi on the PATH of their sshd, and a libnccl of
    that version.
    """
    if shutil.which("gcc") is None:
        pytest.skip("no C compiler here: apt install gcc")
    overlay = hosts.overlay()
    for worker in overlay["workers"]:
        host = worker["host"]
        place = folder / host
        place.mkdir()
        (place / "nvidia-smi").write_text(SMI.format(host=host))
        (place / "nvidia-smi").chmod(0o755)
        (place / "nccl.c").write_text(NCCL_SOURCE.format(code=nccl[host]))
        library = place / "libnccl.so.2"
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, place / "nccl.c"], check=True)
        port = 2200 + len(list(folder.iterdir())) + hash(folder) % 90 * 10
        hosts.lab.sshd(host, port, f"SetEnv=PATH={place}:/usr/local/bin:/usr/bin:/bin")
        worker |= {"local_devices": "all", "env": {"LD_PRELOAD": str(library)}}
        worker["ssh"] = {"port": port, "options": ["HostKeyAlias=" + host]}
    return overlay


def test_a_host_without_the_probe_is_told_what_to_install(hosts: Cluster) -> None:
    link = hosts.folders["attic"] / ".venv"
    target = link.readlink()
    link.unlink()
    try:
        found = rows(probe(hosts, "--json"))
    finally:
        link.symlink_to(target)
    finding = found["attic"]["findings"][0]
    assert "not installed" in finding["why"] and "pip install flodl-probe" in finding["fix"]


def test_a_probe_of_another_release_says_so(hosts: Cluster) -> None:
    link = hosts.folders["attic"] / ".venv"
    target = link.readlink()
    link.unlink()
    (link / "bin").mkdir(parents=True)
    old = link / "bin" / "flodl-probe"
    old.write_text('#!/bin/sh\necho "flodl-probe: cannot do `flodl-probe answer`" >&2\nexit 2\n'.replace("`", ""))
    old.chmod(0o755)
    try:
        found = rows(probe(hosts, "--json"))
    finally:
        shutil.rmtree(link)
        link.symlink_to(target)
    assert "--upgrade flodl-probe" in found["attic"]["findings"][0]["fix"]


def test_all_that_is_wrong_is_said_at_once(hosts: Cluster) -> None:
    overlay = hosts.overlay()
    overlay["workers"][0] |= {"nccl_socket_ifname": "eno9", "data_path": "/no/such/data"}
    overlay["workers"][1] |= {"path": "/no/such/project", "local_devices": "all"}
    hosts.write({"train": {"run": "true"}}, overlay)
    done = probe(hosts, "--json")
    found = rows(done)
    assert done.returncode == 1
    assert levels(found["tower"])["interface"] == levels(found["tower"])["data"] == "error"
    # without its folder the tools of the project are not found either: only those of a login shell
    assert not found["attic"]["reached"] or levels(found["attic"])["project"] == "error"
    interface = next(finding for finding in found["tower"]["findings"] if finding["check"] == "interface")
    assert interface["fix"] == "nccl_socket_ifname: eth0"


def test_a_port_that_somebody_holds_is_named_with_its_holder(hosts: Cluster) -> None:
    other = hosts.lab.popen(
        "desk", "python3", "-c",
        "import socket; s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); "
        f"s.bind(('', {PORT})); s.listen(); print('up', flush=True); s.accept()",
        stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert other.stdout is not None and other.stdout.readline() == "up\n"
        found = rows(probe(hosts, "--json"))
    finally:
        other.kill()
        other.wait(10)
        if other.stdout:
            other.stdout.close()
    ports = next(finding for finding in found["desk"]["findings"] if finding["check"] == "ports")
    assert str(other.pid) in ports["what"] and ports["level"] == "error"


TO_THE_PORT = ("match", "ip", "protocol", "6", "0xff", "match", "ip", "dport", str(PORT), "0xffff")


@pytest.mark.parametrize(
    ("more", "words"),
    [((), "no answer at all"), (("match", "u16", "0x0400", "0x0400", "at", "2"), "loses large packets")],
    ids=["a firewall", "a hop that drops large packets"],
)
def test_what_stands_in_the_way_to_the_port_is_seen(hosts: Cluster, more: tuple[str, ...], words: str) -> None:
    """attic loses what it sends to the port: all of it, or what is longer than a kilobyte."""

    def on_attic(*command: str) -> int:
        return hosts.lab.run("attic", *command).returncode

    sink = ("protocol", "ip", "u32", *TO_THE_PORT, *more, "action", "mirred", "egress", "redirect", "dev", "sink")
    on_attic("ip", "link", "add", "sink", "type", "veth", "peer", "name", "drain")  # drain is down: what comes is lost
    on_attic("ip", "link", "set", "sink", "up")
    on_attic("tc", "qdisc", "add", "dev", "eth0", "clsact")
    filtered = on_attic("tc", "filter", "add", "dev", "eth0", "egress", *sink)
    try:
        if filtered == 2:  # from the kernel; a word that tc itself does not take is 1
            pytest.skip("this kernel takes no packets away by tc")
        assert filtered == 0
        done = probe(hosts, "--json", "--timeout", "12")
    finally:
        on_attic("tc", "qdisc", "del", "dev", "eth0", "clsact")
        on_attic("ip", "link", "del", "sink")
    found = rows(done)
    assert done.returncode == 1 and levels(found["attic"])["road"] == "error"
    assert any(words in issue for issue in found["attic"]["issues"]), found["attic"]["issues"]
    assert levels(found["tower"])["road"] == "ok"


def test_a_tunneled_host_walks_through_its_tunnel(hosts: Cluster) -> None:
    overlay = hosts.overlay()
    overlay["workers"][1]["tunnel"] = True
    hosts.write({"train": {"run": "true"}}, overlay)
    road = rows(probe(hosts, "--json"))["attic"]["road"]
    assert (road["kind"], road["answer"], road["bulk"]) == ("tunnel", "probe", True)


def test_a_driver_tool_that_only_a_login_shell_finds_is_found_and_said_to_be(hosts: Cluster, tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text(SMI.format(host="attic"))
    (tmp_path / "nvidia-smi").chmod(0o755)
    (hosts.lab.home("attic") / ".profile").write_text(f"PATH={tmp_path}:$PATH\n")
    overlay = hosts.overlay()
    overlay["workers"][1]["local_devices"] = "all"
    hosts.write({"train": {"run": "true"}}, overlay)
    attic = rows(probe(hosts, "--json"))["attic"]
    assert [gpu["name"] for gpu in attic["gpus"]] == ["NVIDIA Test"]
    assert any("only the PATH of a login shell" in warning for warning in attic["warnings"]), attic["warnings"]


def test_a_walk_in_tries_the_port_through_its_own_ssh(hosts: Cluster) -> None:
    join = {"join": {"controller": f"127.0.0.1:{PORT}", "ssh": "desk", "devices": "cpu:1", "token": "0" * 32}}
    done = hosts.lab.run(
        "tower", PROBE, "--json", "--config", "-", input=json.dumps(join), timeout=60,
        env={"PATH": f"{BIN}:{os.environ['PATH']}"},
    )  # fmt: skip
    tower = rows(done)["tower"]
    road = tower["road"]
    assert (tower["role"], road["kind"], road["answer"]) == ("walk-in", "ssh", "refused"), road
    assert done.returncode == 0 and "0" * 32 not in done.stdout
