"""Who is asked what, and what becomes of whatever comes back."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_probe import answer, plan
from flodl_probe.checks.across import check_across
from flodl_probe.checks.config_keys import legacy
from flodl_probe.exchange import Outcome, exchange
from flodl_probe.facts import Gpu, Interface, Road
from flodl_probe.fleet import remote_script
from flodl_probe.plan import Flags
from flodl_probe.question import Question
from flodl_probe.report import HostReport, LibtorchReport, NcclReport, assemble
from flodl_probe.table import render

CLUSTER: dict[str, Any] = {
    "controller": {"host": "10.0.0.1", "path": "/p", "join": {"token": "0" * 32}},
    "env": {"SECRET": "s", "LD_PRELOAD": "/a"},
    "workers": [
        {"host": "desk", "local_devices": "cpu:2", "path": "/p", "nccl_socket_ifname": "eth0"},
        {
            "host": "tower", "local_devices": [0, 1], "path": "/q", "nccl_socket_ifname": "eno1", "tunnel": True,
            "data_path": "/data", "arch": "precompiled/cu128", "env": {"LD_PRELOAD": "/b"}, "ssh": {"port": 2222},
        },
    ],
}  # fmt: skip


def test_each_worker_gets_its_own_question() -> None:
    made = plan.fleet(CLUSTER, Flags(timeout=10), "desk", "hash")
    desk, tower = made.targets
    assert (desk.local, desk.question.controller, desk.question.devices) == (True, "127.0.0.1", "cpu:2")
    assert (tower.local, tower.question.controller, tower.question.devices) == (False, "10.0.0.1", "0,1")
    assert tower.tunnel and tower.ssh is not None and tower.ssh.port == 2222
    asked = tower.question
    assert (asked.data_path, asked.arch, asked.manifest_hash) == ("/data", "precompiled/cu128", "hash")
    assert desk.question.data_wanted and desk.question.several
    assert tower.question.patience < 10


def test_what_travels_holds_no_token_and_only_the_env_that_tells_something() -> None:
    text = b"".join(msgspec.json.encode(target.question) for target in plan.fleet(CLUSTER, Flags(), "x", None).targets)
    assert b"0" * 32 not in text and b"SECRET" not in text
    assert b'"LD_PRELOAD":"/b"' in text


def test_the_command_line_wins_on_every_host() -> None:
    made = plan.fleet(CLUSTER, Flags("cpu:1", "/d", "/l", "cuda", None, True, True), "x", None)
    for target in made.targets:
        asked = target.question
        assert (asked.devices, asked.data_path, asked.libtorch_path, asked.docker) == ("cpu:1", "/d", "/l", "cuda")
        assert asked.skip_mount and asked.deep


def test_every_old_key_is_named_and_the_rest_is_asked_all_the_same() -> None:
    old = msgspec.json.decode(msgspec.json.encode(CLUSTER))
    old["controller"]["master_port"] = 29500
    old["workers"][1] |= {"ssh_user": "ann", "ssh_port": 2222}
    old["workers"][1]["env"] = {"master_addr": "a user's own name"}
    made = plan.fleet(old, Flags(), "x", None)
    assert [found.what.split()[0] for found in made.findings] == [
        "cluster.controller.master_port",
        "cluster.workers[1].ssh_user",
        "cluster.workers[1].ssh_port",
    ]
    assert {found.level for found in made.findings} == {"error"} and len(made.targets) == 2
    assert legacy({"hosts": []})[0].fix == "write it as workers"


@pytest.mark.parametrize("block", [None, [], "x", {}, {"controller": 3}, {**CLUSTER, "odd": 1}])
def test_a_block_that_cannot_be_read_is_a_finding(block: Any) -> None:
    made = plan.fleet(block, Flags(), "x", None)
    assert made.targets == [] and made.findings[0].level == "error" and made.findings[0].fix


def test_a_walk_in_needs_what_its_block_needs() -> None:
    asked = plan.walk_in(
        {
            "ssh": "ann@farm:2222", "source": {"from": "rsync://farm:/run/tree"}, "data_source": "sshfs://farm:/d",
            "devices": [0, 1], "token": "0" * 32,
        }
    )  # fmt: skip
    assert (asked.controller, asked.port, asked.devices) == ("127.0.0.1", 1337, "0,1")
    road = asked.forward
    assert road is not None and (road.target, road.port, road.user) == ("farm", 2222, "ann")
    assert asked.tools == ["flodl-agent", "ssh", "rsync", "sshfs"]
    direct = plan.walk_in({"controller": "farm:1400", "source": "git+https://x/y#v1"})
    assert (direct.controller, direct.port, direct.forward) == ("farm", 1400, None)
    assert direct.tools == ["flodl-agent", "git"]


def test_a_bad_join_block_is_a_finding_and_the_box_is_audited_all_the_same() -> None:
    for join in ({"ssh": "-oProxyCommand=x"}, {"ssh": 7}, {"controller": "a:99999"}, ["x"]):
        made = plan.alone(Flags(), join)
        assert made.findings[0].level == "error" and len(made.targets) == 1, join


def report(host: str = "tower", **more: Any) -> HostReport:
    return HostReport(host, "ok", "worker", probe="0.1.0", protocol=1, **more)


def outcome(stdout: bytes = b"", stderr: bytes = b"", code: int | None = 0) -> Outcome:
    made = Outcome()
    made.stdout, made.stderr, made.code = stdout, stderr, code
    return made


ASKED = Question(host="tower", role="worker")


def row(came: Outcome) -> HostReport:
    return answer.understand(ASKED, came, "ssh -T tower", "0.1.0", 30)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_report_is_found_among_whatever_a_shell_prints(before: bytes, after: bytes) -> None:
    seen = row(outcome(before + answer.encode(report()) + after))
    printed = (before + after).replace(answer.MARKER, b"").decode("utf-8", "replace").strip()
    assert seen.reached and (seen.level == "warning") == bool(printed)


@given(st.binary(max_size=300))
def test_whatever_comes_instead_of_a_report_is_an_unreached_row(data: bytes) -> None:
    seen = row(outcome(data))
    assert (seen.reached, seen.level, len(seen.issues)) == (False, "error", 1)


@given(st.binary(max_size=100))
def test_a_damaged_report_is_another_version_s(data: bytes) -> None:
    seen = row(outcome(answer.MARKER + b"{" + data))
    assert not seen.reached and "--upgrade" in seen.findings[0].fix


@pytest.mark.parametrize(
    ("came", "words"),
    [
        (outcome(stderr=b"x\nssh: connect to host tower port 22: No route to host\n", code=255), "No route to host"),
        (outcome(stderr=b"ann@tower: Permission denied (publickey).\n", code=255), "ssh-copy-id tower"),
        (
            outcome(
                stderr=b"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\n  ssh-keygen -f '/h' -R 'tower'\n"
                b"Host key verification failed.\n",
                code=255,
            ),
            "ssh-keygen -f '/h' -R 'tower'",
        ),
        (outcome(stderr=b"fix: x\n", code=127), "pip install flodl-probe"),
        (outcome(stderr=b"cannot do flodl-probe answer\n", code=2), "--upgrade"),
        (outcome(stderr=b"waiting for the disk\n", code=None), "last words: waiting for the disk"),
        (outcome(stderr=b"oh\nno\n", code=3), "no"),
    ],
)
def test_every_way_not_to_answer_has_its_words(came: Outcome, words: str) -> None:
    found = row(came).findings[0]
    assert found.level == "error" and words in f"{found.sentence()} {found.fix}"


def test_a_report_of_another_release_says_so_and_unknown_keys_are_no_hurdle() -> None:
    document = {**msgspec.to_builtins(report()), "probe": "0.9", "new_key": 1}
    del document["interfaces"]
    line = b"\n" + answer.MARKER + msgspec.json.encode(document) + b"\n"
    seen = row(outcome(line))
    assert seen.reached and "flodl-probe 0.9" in seen.warnings[0]


def test_the_shell_words_export_our_knobs_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "0.5")
    script = remote_script(Question(host="tower", path="/a b", env={"LD_PRELOAD": "/x"}))
    assert "'/a b'" in script and "FLODL_NET_TIMEOUT_SCALE=0.5" in script and "LD_PRELOAD" not in script


# processes


def talk(code: str, seconds: float = 10.0, tunnel: bool = False) -> Outcome:
    argv = [sys.executable, "-S", "-c", code]
    return exchange(argv, os.environ, lambda port: f"asked {port}".encode(), seconds, tunnel)


def test_a_process_is_asked_and_heard_to_its_end() -> None:
    came = talk("import sys; print('heard', sys.stdin.read()); print('bad', file=sys.stderr); sys.exit(3)")
    assert (came.stdout, came.stderr, came.code) == (b"heard asked None\n", b"bad\n", 3)


def test_one_that_hangs_is_ended_at_its_deadline_with_what_it_said() -> None:
    came = talk("import sys, time; print('so far', flush=True); time.sleep(60)", seconds=1.0)
    assert (came.code, came.stdout) == (None, b"so far\n") and came.seconds < 5


def test_one_that_never_stops_printing_is_bounded() -> None:
    came = talk("while True: print('x' * 9999)", seconds=0.5)
    assert came.code is None and len(came.stdout) <= 4 << 20


def test_one_that_reads_nothing_or_is_not_there_is_no_crash() -> None:
    assert talk("").code == 0
    missing = exchange(["/no/such/ssh"], {}, lambda _: b"", 1)
    assert missing.code is None and "no such file" in missing.failure
    assert "OpenSSH" in row(missing).findings[0].fix


def test_through_a_tunnel_the_question_waits_for_the_port() -> None:
    code = (
        "import sys; print('Allocated port 40123 for remote forward to 127.0.0.1:1337', file=sys.stderr, flush=True); "
        "print(sys.stdin.read())"
    )
    assert talk(code, tunnel=True).stdout == b"asked 40123\n"


# comparison


def gpu_host(name: str, nccl: str, **more: Any) -> HostReport:
    return report(
        name, gpus=[Gpu(0, arch=more.pop("arch", "sm90"), vendor=more.pop("vendor", "nvidia"))],
        nccl=NcclReport("/l", nccl), **more,
    )  # fmt: skip


def skew(*hosts: HostReport) -> dict[str, str]:
    return {found.check: found.level for found in check_across(list(hosts)) if found.level != "ok"}


def test_hosts_that_agree_are_green() -> None:
    assert skew(gpu_host("a", "2.27.5"), gpu_host("b", "2.27.7")) == {}


def test_nccl_that_differs_in_its_minor_is_an_error_with_the_command_that_builds_one_for_all() -> None:
    hosts = [gpu_host("a", "2.27.5", arch="sm61"), gpu_host("b", "2.28.1", arch="sm120")]
    found = next(one for one in check_across(hosts) if one.check == "nccl-skew")
    assert found.level == "error" and 'fdl nccl build --tag v2.28 --archs "12.0;6.1"' in found.fix


def test_cpu_hosts_containers_and_hosts_that_were_not_reached_have_no_nccl_to_compare() -> None:
    other = gpu_host("b", "2.28.1", devices="cpu:2")
    assert skew(gpu_host("a", "2.27.5"), other) == {}
    other = gpu_host("b", "2.28.1")
    other.nccl.via_docker = "cuda"
    assert skew(gpu_host("a", "2.27.5"), other) == {}
    other = gpu_host("b", "2.28.1")
    other.reached = False
    assert skew(gpu_host("a", "2.27.5"), other) == {}


def test_torch_vendors_mtu_protocol_and_release_are_compared() -> None:
    def torch(version: str) -> LibtorchReport:
        return LibtorchReport({"torch": version})

    assert skew(report("a", libtorch=torch("2.13.0+cu128")), report("b", libtorch=torch("2.13.0+rocm7"))) == {}
    older = report("b", libtorch=torch("2.12.1"))
    assert skew(report("a", libtorch=torch("2.13.0")), older) == {"torch-skew": "warning"}
    assert skew(gpu_host("a", "2.27.5"), gpu_host("b", "", vendor="amd")) == {"vendors": "warning"}
    way = Road("c:1", interface="eth0")
    mtus = [report(str(mtu), road=way, interfaces=[Interface("eth0", True, mtu)]) for mtu in (1500, 9000)]
    assert skew(*mtus) == {"mtu-skew": "warning"}
    newer = report("b")
    newer.protocol = 2
    assert skew(report("a"), newer) == {"release-skew": "error"}


def test_the_table_has_a_row_a_host_and_says_only_what_is_wrong() -> None:
    good, bad = report("good", devices="cpu:2"), row(outcome(stderr=b"ssh: no\x1b[31m route\n", code=255))
    text = render(assemble([good, bad], [], "0.1.0"))
    lines = text.splitlines()
    assert lines[1].split() == ["good", "ok", "cpu:2"] and lines[2].split()[:2] == ["tower", "unreached"]
    assert lines[3].startswith("error: tower: cannot ask tower") and lines[4].startswith("  fix: ") and len(lines) == 5
    assert "\x1b" not in text
