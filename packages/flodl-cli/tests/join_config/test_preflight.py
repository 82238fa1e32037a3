"""What the wizard says of a box, on recordings of several platforms: golden texts, and the traps by name."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flodl_cli.join_config import facts, gathering, preflight, report
from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import Controller, Farm
from flodl_cli.join_config.steps import as_text, steps

BOXES = Path(__file__).parent / "boxes"
NAMES = sorted(path.stem for path in BOXES.glob("*.json"))


def farm(door: str = "b", port: int = 2222) -> Farm:
    return Farm(
        label="lab", root="/home/me/digits", controller=Controller("me", "desk", port), door=door, token="ab" * 16,
        public_key="ssh-ed25519 AAAA x", served="/home/me/.flodl/run", data="/flodl/data", publishes=True,
    )  # fmt: skip


def box(name: str) -> tuple[Farm, Facts]:
    recorded = json.loads((BOXES / f"{name}.json").read_text())
    return farm(recorded["door"], recorded["port"]), facts.read(recorded["raw"])


@pytest.mark.parametrize("name", NAMES)
def test_a_box_is_told_what_it_lacks_in_its_own_commands(name: str) -> None:
    made, seen = box(name)
    findings = preflight.preflight(made, seen)
    text = (
        report.findings_text(findings) + "\n\n" + as_text(steps(made, seen, findings, "train", installed=False)) + "\n"
    )
    golden = BOXES / f"{name}.txt"
    if os.environ.get("REWRITE_TRANSCRIPTS"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize(
    ("name", "trap", "line"),
    [
        ("ubuntu-socket-ufw", "ssh.socket", "systemctl disable --now ssh.socket"),
        ("fedora-selinux", "selinux", "semanage port -a -t ssh_port_t -p tcp 2222"),
        ("macos-no-remote-login", "launchd", "--controller me@desk:22"),
        ("wsl2-nat", "wsl", "netsh interface portproxy add"),
        ("odd-sshd", "include", "Include /etc/ssh/sshd_config.d/*.conf"),
        ("odd-sshd", "key-file", "--authorized-keys /etc/ssh/keys/me"),
        ("odd-sshd", "listen", "ListenAddress 0.0.0.0:2222"),
    ],
)
def test_the_traps_that_give_no_error_are_named_with_the_line_that_mends_them(name: str, trap: str, line: str) -> None:
    (found,) = (each for each in preflight.preflight(*box(name)) if each.name == trap)
    assert found.state == "trap" and line in "\n".join(found.fix)


def test_a_box_that_has_all_lacks_nothing() -> None:
    assert {each.state for each in preflight.preflight(*box("debian"))} == {"ok"}
    assert {each.state for each in preflight.preflight(*box("rocky-selinux-told"))} == {"ok"}


@pytest.mark.parametrize(
    "missing", ["sshd_config", "ssh.socket", "os-release", "getenforce", "knock", "folders", "uid"]
)
def test_an_answer_that_did_not_come_is_no_error(missing: str) -> None:
    recorded = json.loads((BOXES / "debian.json").read_text())["raw"]
    recorded.pop(missing, None)
    for door in ("a", "b", "nologin"):
        preflight.preflight(farm(door), facts.read(recorded))
        preflight.preflight(farm(door), facts.read({}))


def test_this_very_box_can_be_recorded_and_read() -> None:
    raw = gathering.gather_raw(2222, ["/nonexistent"], "flodl-lab.conf")
    seen = facts.read(raw)
    assert json.loads(json.dumps(raw)) == raw
    assert seen.folders == {"/nonexistent": "absent"} and seen.dropin is None
