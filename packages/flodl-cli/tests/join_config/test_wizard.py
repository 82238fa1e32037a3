"""`fdl join-config` in a project of its own: what it writes, keeps, rotates, refuses, and never shows."""

from __future__ import annotations

import stat
import subprocess
from typing import Any, TypeAlias

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from flodl_cli import manifest, project_files
from flodl_cli.join_config import farm, key_line, overlay, worker_block
from flodl_cli.join_config.cloud_init import cloud_init
from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.project import Seen
from flodl_wire.config import parse_cluster
from flodl_wire.join_block import parse_join

Wizard: TypeAlias = Any  # conftest.py's: a test file imports none

SECRETS = (".fdl/lab/keys/join_key", ".fdl/lab/worker.yml", "fdl.lab.yml")


def test_a_farm_is_written_whole_and_a_second_run_changes_no_byte(wizard: Wizard) -> None:
    first = wizard.farm("--cloud-init")
    assert {each["state"] for each in first["files"]} == {"new"}
    before = wizard.tree()
    for name in (*SECRETS, ".fdl/lab/cloud-init.yml"):
        assert before[name][0] == 0o600, name
    assert stat.S_IMODE((wizard.root / ".fdl/lab/keys").stat().st_mode) == 0o700
    assert (wizard.root / ".fdl/lab/.gitignore").read_text() == "*\n"
    for words in ((), ("--yes",), ("--controller", "me@desk:2222"), ("--door", "b")):
        again = wizard.config(*words)
        assert {each["state"] for each in again["files"]} == {"unchanged"}
        assert again["credentials"] == {"key": "kept", "token": "kept"}
        assert wizard.tree() == before
    assert wizard.type("@lab", "join-config").code == 0 and wizard.tree() == before


def test_what_is_written_loads_in_our_own_loader(wizard: Wizard) -> None:
    for door in farm.DOORS:
        wizard.farm("--door", door)
        project = project_files.load(str(wizard.root), "lab")
        assert project is not None
        assert parse_cluster(project.config.get("cluster").plain()).controller.join.token == wizard.token  # type: ignore[union-attr]
        assert manifest.commands_of(project)["train"].cluster
        block = parse_join(yaml.safe_load((wizard.root / ".fdl/lab/worker.yml").read_text())["join"])
        assert block.token == wizard.token and block.persist
        assert (block.source is not None, block.data_source is not None) == (door == "b", door == "a")


names = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@given(
    label=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,8}", fullmatch=True),
    controller=st.sampled_from(["me@desk", "op_1@10.0.0.1:2222", "x@[fe80::1%eth0]:22", "a-b@h.example:65535"]),
    door=st.sampled_from(list(farm.DOORS)),
    folder=names,
    served=names,
    program=st.sampled_from(["train.py", "sub dir/é.py", "-x.py", "yes.py", "#.py", "a: b.py"]),
    name=st.sampled_from(["", "digits", "yes", "é", "a.b", "1e3", "~", "null"]),
    runs=st.sampled_from(["", "python train.py", "digits"]),
)
def test_every_answer_makes_files_that_are_read_back_as_they_were_meant(
    label: str, controller: str, door: str, folder: str, served: str, program: str, name: str, runs: str
) -> None:
    made = Farm(
        label, "/home/" + folder, farm.parse_controller(controller, "me"), door, "ab" * 16, "ssh-ed25519 AAAA c",
        "/srv/" + served, "/data/" + served, program,
    )  # fmt: skip
    seen = Seen(made.root, name, runs=runs, windows=[name] if name else [], program=program)
    document = yaml.safe_load(overlay.scaffold(made, seen))
    cluster = parse_cluster(document["cluster"])
    assert (cluster.controller.path, cluster.controller.join.token) == (made.root, made.token)  # type: ignore[union-attr]
    assert document.get("publish", {}).get("bin", program) == program
    if name and runs:
        assert document["commands"] == {name: {"run": runs, "cluster": True}}
    block = parse_join(yaml.safe_load(worker_block.worker_yml(made))["join"])
    assert block.ssh.target == made.controller.host and block.ssh.port == made.controller.port  # type: ignore[union-attr]
    assert parse_cluster(yaml.safe_load(overlay.snippet(made))["cluster"]).controller.join.token == made.token  # type: ignore[union-attr]
    line = key_line.key_line(made)
    assert "\n" not in line and key_line.blob_of(made.public_key) == "AAAA"
    data = yaml.safe_load(cloud_init(made, "-----BEGIN\nabc\n-----END\n"))
    files = {each["path"]: each for each in data["write_files"]}
    assert files[f"/srv/flodl/.flodl/{label}/join_key"]["content"] == "-----BEGIN\nabc\n-----END\n"
    assert files[f"/srv/flodl/{label}/fdl.yml"]["content"] == worker_block.worker_yml(made)
    assert all(isinstance(each, str) for each in data["runcmd"])


def test_no_secret_is_shown_in_any_form(wizard: Wizard) -> None:
    said = []
    for words in (
        ("--controller", "me@desk:2222", "--yes", "--cloud-init"), ("--install-key",), ("--json",), ("--list",),
        ("--dry-run",), ("--regen", "--json"), ("--regen",), ("--dry-run", "--regen"), ("--test",),
    ):  # fmt: skip
        typed = wizard.type("join-config", *(() if words == ("--list",) else ("lab",)), *words)
        said.append(typed.out + typed.err)
        for secret in wizard.secrets():
            assert not any(secret in each for each in said)
    for name in ("authorized_keys", "install-notes.md", "flodl-lab.conf", "flodl-join-lab.service", "keys/retired.pub"):
        text = (wizard.root / ".fdl/lab" / name).read_text()
        assert not any(secret in text for secret in wizard.secrets()), name


def test_regen_rotates_both_and_touches_the_overlay_s_token_alone(wizard: Wizard) -> None:
    wizard.farm("--cloud-init")
    path = wizard.root / "fdl.lab.yml"
    mine = (
        "# mine\r\n"
        + path.read_text().replace("min_rank_start: 2", "min_rank_start: 3")
        + "env: &x\n".replace("env: &x\n", "")
    )
    path.write_bytes(mine.encode())
    old, key = wizard.token, (wizard.root / ".fdl/lab/keys/join_key").read_text()
    report = wizard.config("--regen")
    assert report["credentials"] == {"key": "rotated", "token": "rotated"}
    assert wizard.token != old and (wizard.root / ".fdl/lab/keys/join_key").read_text() != key
    assert path.read_bytes() == mine.replace(old, wizard.token).encode()
    assert wizard.token in (wizard.root / ".fdl/lab/cloud-init.yml").read_text()
    assert any("old key" in note for note in report["notes"])
    before = wizard.tree()
    wizard.config()
    assert wizard.tree() == before


def test_the_shape_of_a_farm_is_kept_until_a_flag_changes_it(wizard: Wizard) -> None:
    wizard.farm("--door", "nologin")
    assert wizard.config()["farm"]["door"] == "nologin"
    changed = wizard.config("--door", "a", "--controller", "op@other:22")
    assert (changed["farm"]["door"], changed["farm"]["controller"]) == ("a", "op@other:22")
    assert {"path": ".fdl/lab/flodl-lab.conf", "state": "removed", "secret": False} in changed["files"]
    assert not (wizard.root / ".fdl/lab/flodl-lab.conf").exists()
    again = wizard.config()
    assert again["farm"] == changed["farm"] and {each["state"] for each in again["files"]} == {"unchanged"}
    assert again["notes"] == ["fdl.lab.yml is yours and still says controller.host: desk"]


OWN = """\
# mine
cluster:
  controller: {host: desk, path: /p, join: {discovery: true, min_rank_start: 2%s}}
"""


def test_a_user_s_overlay_without_a_token_is_never_edited(wizard: Wizard) -> None:
    path = wizard.root / "fdl.lab.yml"
    path.write_text(OWN % "")
    report = wizard.farm()
    assert path.read_text() == OWN % "" and "overlay-snippet.yml" in report["overlay"]["note"]
    snippet = wizard.root / ".fdl/lab/overlay-snippet.yml"
    assert wizard.token in snippet.read_text() and snippet.stat().st_mode & 0o777 == 0o600
    before = wizard.tree()
    wizard.config()
    assert wizard.tree() == before
    path.write_text(OWN % f", token: '{wizard.token}'")
    wizard.config()
    assert not snippet.exists()


@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_user_s_overlay_with_a_token_gives_the_farm_its_token(wizard: Wizard, quote: str) -> None:
    path = wizard.root / "fdl.lab.yml"
    path.write_text(OWN % f", token: {quote}{'5e' * 16}{quote}")
    wizard.farm()
    assert wizard.token == "5e" * 16 and path.read_text() == OWN % f", token: {quote}{'5e' * 16}{quote}"
    wizard.config("--regen")
    assert path.read_text() == OWN % f", token: {quote}{wizard.token}{quote}" and wizard.token != "5e" * 16


def test_a_token_that_is_another_file_s_is_not_rotated(wizard: Wizard) -> None:
    (wizard.root / "farms.yml").write_text(OWN % f", token: '{'5e' * 16}'")
    (wizard.root / "fdl.lab.yml").write_text("inherit-from: farms.yml\n")
    wizard.farm()
    before = wizard.tree()
    typed = wizard.type("join-config", "lab", "--regen")
    assert typed.code == 1 and "cannot rotate the token" in typed.err and "farms.yml" in typed.err
    assert wizard.tree() == before


@pytest.mark.parametrize(
    ("files", "command", "entry"),
    [
        ({"pyproject.toml": '[project]\nname = "train"\n'}, "train", "commands:\n  train:\n    cluster: true"),
        ({"pyproject.toml": '[project]\nname = "digits"\n'}, "digits", "  digits:\n    run: python train.py\n"),
        ({"pyproject.toml": '[project]\nname = "status"\n'}, "train", "# commands:"),
        ({"pyproject.toml": "[project"}, "train", "# commands:"),
        ({}, "train", "# commands:"),
        (
            {"pyproject.toml": '[project]\nname = "dig"\nscripts = {dig = "dig:main"}\n', "fdl.yml": ""},
            "dig",
            "  dig:\n    run: dig\n",
        ),
        ({"fdl.yml": "commands: {show: {run: cat}}\n", "train.py": None}, "COMMAND", "# commands:"),
    ],
)
def test_the_overlay_s_command_is_named_after_the_project_or_commented(
    wizard: Wizard, files: dict[str, str | None], command: str, entry: str
) -> None:
    for name, text in files.items():
        if text is None:
            (wizard.root / name).unlink()
        else:
            (wizard.root / name).write_text(text)
    report = wizard.farm()
    assert entry in (wizard.root / "fdl.lab.yml").read_text()
    assert f"fdl @lab {command}" in report["steps"][-1]["commands"]
    assert wizard.config()["steps"][-1] == report["steps"][-1]
    project = project_files.load(str(wizard.root), "lab")
    assert project is not None and (command == "COMMAND" or manifest.commands_of(project)[command].cluster)


def test_the_key_is_installed_on_explicit_consent_only(wizard: Wizard) -> None:
    keys = wizard.home / ".ssh/authorized_keys"
    assert wizard.farm()["install"] is None and not keys.exists()
    done = wizard.config("--install-key")
    assert done["install"]["state"] == "installed" and done["freshness"]["authorized_keys"] == "installed"
    assert (keys.stat().st_mode & 0o777, keys.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    line = (wizard.root / ".fdl/lab/authorized_keys").read_text()
    assert keys.read_text() == line
    keys.write_text("ssh-rsa AAAA me\n" + line + "ssh-rsa BBBB you\n")
    new = wizard.config("--regen", "--install-key")
    assert new["install"]["state"] == "installed" and new["notes"] == []
    fresh = (wizard.root / ".fdl/lab/authorized_keys").read_text()
    assert keys.read_text() == "ssh-rsa AAAA me\n" + fresh + "ssh-rsa BBBB you\n" and fresh != line
    assert wizard.config()["install"]["state"] == "kept"


def test_the_key_does_not_go_into_another_user_s_door_by_mistake(wizard: Wizard) -> None:
    wizard.farm("--controller", "op@desk:2222")
    typed = wizard.type("join-config", "lab", "--install-key")
    assert typed.code == 1 and "workers come in as op" in typed.err and "--authorized-keys" in typed.err
    other = wizard.root / "op_keys"
    typed = wizard.type("join-config", "lab", "--install-key", "--authorized-keys", str(other))
    assert typed.code == 0 and other.read_text().startswith("restrict,port-forwarding,permitopen=")


def test_a_file_that_others_may_write_is_reported_and_mended_when_allowed(wizard: Wizard) -> None:
    keys = wizard.home / ".ssh/authorized_keys"
    keys.parent.mkdir()
    keys.write_text("")
    keys.chmod(0o666)
    wizard.farm()
    typed = wizard.type("join-config", "lab", "--install-key")
    assert typed.code == 1 and f"sshd ignores it until: chmod 644 {keys}" in typed.out
    assert wizard.type("join-config", "lab", "--install-key", "--yes").code == 0
    assert keys.stat().st_mode & 0o777 == 0o644


def test_questions_have_defaults_and_an_n_is_no_consent(wizard: Wizard) -> None:
    typed = wizard.type("join-config", "lab", answers="me@desk:99999\nme@desk:2200\nc\nnologin\nn\n")
    assert typed.code == 0 and "where workers dial" in typed.err and "put the key's line into" in typed.err
    assert "farm lab: door nologin at me@desk:2200" in typed.out and not (wizard.home / ".ssh").exists()
    key = wizard.token
    assert wizard.type("join-config", "lab", answers="n\ny\n").code == 0
    assert (wizard.home / ".ssh/authorized_keys").exists() and wizard.token == key
    assert wizard.type("join-config", "lab", answers="y\ny\n").code == 0 and wizard.token != key
    typed = wizard.type("join-config", "other", answers="\n\n")  # Ctrl-D at the third
    assert typed.code == 130 and (wizard.root / ".fdl/other/worker.yml").exists()
    assert wizard.type("join-config", "third", answers="").code == 130 and not (wizard.root / ".fdl/third").exists()


def test_a_dry_run_writes_nothing_and_says_what_it_would(wizard: Wizard) -> None:
    before = wizard.tree()
    typed = wizard.type("join-config", "lab", "--yes", "--dry-run")
    assert typed.code == 0 and "dry run" in typed.out and wizard.tree() == before
    assert not (wizard.root / ".fdl").exists()
    wizard.farm()
    before = wizard.tree()
    states = {each["path"]: each["state"] for each in wizard.config("--dry-run", "--door", "a")["files"]}
    assert states[".fdl/lab/worker.yml"] == "changed" and states[".fdl/lab/.gitignore"] == "unchanged"
    assert wizard.tree() == before


def test_farms_are_listed_and_a_broken_one_says_so_in_its_line(wizard: Wizard) -> None:
    assert wizard.type("join-config", "--list").out.startswith("no farms")
    wizard.farm()
    (wizard.root / ".fdl/bad").mkdir()
    (wizard.root / ".fdl/bad/worker.yml").write_text("join: [")
    rows = wizard.type("join-config", "--list", "--json").document["farms"]
    assert [row["label"] for row in rows] == ["bad", "lab"] and "error" in rows[0] and rows[1]["door"] == "b"
    assert "lab: door b at me@desk:2222" in wizard.type("join-config", "--list").out


def test_words_are_said_where_a_slip_is_likely(wizard: Wizard, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a folder below, in a repository that would take the token, under a name that is nearly another farm's."""
    below = wizard.root / "sub"
    below.mkdir()
    monkeypatch.chdir(below)
    subprocess.run(["git", "init", "-q", str(wizard.root)], check=True)
    report = wizard.farm()
    assert report["steps"][0]["commands"] == [f"cd {wizard.root}"]
    assert report["notes"] == ["git would take fdl.lab.yml, which holds the token: add it to .gitignore"]
    (wizard.root / ".gitignore").write_text("fdl.*.yml\n")
    assert wizard.config()["notes"] == []
    typed = wizard.type("join-config", "lba", "--yes", "--json")
    assert typed.document["notes"] == ["lba is a farm of its own now; this project also has lab"]
    listed = subprocess.run(
        ["git", "ls-files", "-o", "--exclude-standard"], cwd=wizard.root, capture_output=True, text=True
    )
    assert ".fdl" not in listed.stdout


def test_an_install_reads_fresh_and_says_how_old_things_are(wizard: Wizard) -> None:
    report = wizard.farm()
    assert report["freshness"] == {
        "key_s": pytest.approx(0, abs=30), "published_s": None, "dropin": "absent", "authorized_keys": "absent",
    }  # fmt: skip
    served = wizard.home / ".flodl/run/tree"
    served.mkdir(parents=True)
    (served / ".fdl-run.yml").write_text("published_epoch: 1000\n")
    assert wizard.config()["freshness"]["published_s"] > 1e9
    assert "run published" in wizard.type("join-config", "lab").out
