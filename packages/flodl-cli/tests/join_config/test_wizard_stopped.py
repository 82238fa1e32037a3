"""What `fdl join-config` refuses, and what it leaves behind when it is stopped in the middle: what was there before."""

from __future__ import annotations

import errno
import os
from typing import Any, TypeAlias

import pytest

from flodl_cli.join_config import wizard as wizards

Wizard: TypeAlias = Any  # conftest.py's: a test file imports none


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ((), 2, "it has no name"),
        (("lab",), 1, "--controller --door"),
        (("lab", "--controler", "x"), 2, "unrecognized"),
        (("a/b", "--yes"), 1, "cannot call a farm 'a/b'"),
        (("-x", "--yes"), 2, ""),
        (("lab", "--door", "c", "--yes"), 1, "no such door"),
        (("lab", "--controller", "me@", "--yes"), 1, "cannot read --controller"),
        (("lab", "--controller", "me@desk:99999", "--yes"), 1, "99999"),
        (("lab", "--controller", 'me"@desk', "--yes"), 1, "cannot read --controller"),
        (("lab", "--controller", "me@de\nsk", "--yes"), 1, "cannot read --controller"),
        (("lab", "--test", "--regen"), 1, "cannot use --test and --regen together"),
        (("lab", "--list", "--door", "a"), 1, "cannot use --list and --door together"),
        (("lab", "--dry-run", "--install-key"), 1, "cannot use --dry-run and --install-key together"),
        (("lab", "--yes", "--authorized-keys", "x"), 1, "add --install-key"),
        (("lab", "--test"), 1, "there is no such farm here; farms: none"),
        (("lab", "@bay", "--yes"), 1, "@bay and lab disagree"),
    ],
)
def test_what_cannot_be_meant_is_refused_and_leaves_nothing(
    wizard: Wizard, words: tuple[str, ...], code: int, said: str
) -> None:
    before = wizard.tree()
    typed = wizard.type("join-config", *words)
    assert (typed.code, said in typed.err) == (code, True), typed.err
    assert "Traceback" not in typed.err and wizard.tree() == before


def test_a_refusal_under_json_is_one_document(wizard: Wizard) -> None:
    typed = wizard.type("join-config", "lab", "--json", "--yes", "--door", "c")
    assert typed.code == 1 and typed.document["error"]["code"] == "bad-door"


def test_without_a_project_there_is_no_farm(wizard: Wizard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(wizard.home)
    typed = wizard.type("join-config", "lab", "--yes")
    assert typed.code == 1 and "`fdl init` writes one" in typed.err


@pytest.mark.parametrize("word", ["join-confg", "join_config"])
def test_a_typo_is_told_the_right_word(wizard: Wizard, word: str) -> None:
    typed = wizard.type(word, "lab")
    assert typed.code == 127 and "join-config" in typed.err


@pytest.mark.parametrize("after", [0, 5, 9])
@pytest.mark.parametrize("regen", [False, True])
def test_a_disk_that_fills_leaves_what_was_there(
    wizard: Wizard, monkeypatch: pytest.MonkeyPatch, after: int, regen: bool
) -> None:
    if regen:
        wizard.farm("--cloud-init")
    before = wizard.tree()
    left = [after]
    real = os.fsync

    def full(descriptor: int) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    words = ("--regen",) if regen else ("--controller", "me@desk:2222", "--yes")
    typed = wizard.type("join-config", "lab", *words)
    if left[0] < 0:
        assert typed.code == 1 and "No space left" in typed.err and "nothing was changed" in typed.err
        assert wizard.tree() == before and (regen or not (wizard.root / ".fdl").exists())
    monkeypatch.setattr(os, "fsync", real)
    assert wizard.type("join-config", "lab", *words).code == 0


def test_ctrl_c_in_the_middle_leaves_what_was_there(wizard: Wizard, monkeypatch: pytest.MonkeyPatch) -> None:
    wizard.farm()
    before = wizard.tree()
    real, count = os.fsync, [4]

    def interrupted(descriptor: int) -> None:
        count[0] -= 1
        if not count[0]:
            raise KeyboardInterrupt
        real(descriptor)

    monkeypatch.setattr(os, "fsync", interrupted)
    assert wizard.type("join-config", "lab", "--regen").code == 130
    assert wizard.tree() == before


def test_a_key_that_others_may_read_is_not_used_on(wizard: Wizard) -> None:
    wizard.farm()
    key = wizard.root / ".fdl/lab/keys/join_key"
    key.chmod(0o644)
    typed = wizard.type("join-config", "lab")
    assert typed.code == 1 and "others may read it" in typed.err and "--regen" in typed.err


def test_a_public_half_that_was_lost_or_mixed_up_is_made_again(wizard: Wizard) -> None:
    wizard.farm()
    public = wizard.root / ".fdl/lab/keys/join_key.pub"
    right = public.read_text()
    public.write_text("ssh-ed25519 AAAAother x\n")
    wizard.config()
    assert public.read_text() == right
    public.unlink()
    wizard.config()
    assert public.read_text() == right


def test_a_worker_yml_that_is_none_is_refused_with_a_way_on(wizard: Wizard) -> None:
    wizard.farm()
    path = wizard.root / ".fdl/lab/worker.yml"
    path.write_text("jon: {}\n")
    typed = wizard.type("join-config", "lab")
    assert typed.code == 1 and "delete it" in typed.err
    path.unlink()
    assert wizard.farm()["credentials"]["key"] == "kept"


def test_two_at_once_do_not_mix_their_keys(wizard: Wizard) -> None:
    with wizards._alone(str(wizard.root)):
        typed = wizard.type("join-config", "lab", "--yes")
    assert typed.code == 1 and "another `fdl join-config` is at work" in typed.err
    assert not (wizard.root / ".fdl").exists()


def test_an_overlay_that_cannot_be_read_is_shown_and_left(wizard: Wizard) -> None:
    path = wizard.root / "fdl.lab.yml"
    path.write_text("cluster: [\n")
    typed = wizard.type("join-config", "lab", "--yes")
    assert typed.code == 1 and "fdl.lab.yml" in typed.err and path.read_text() == "cluster: [\n"
