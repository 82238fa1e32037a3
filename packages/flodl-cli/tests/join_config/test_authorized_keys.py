"""Our line in somebody's authorized_keys: in, up to date, and every other byte as it was."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_cli.join_config import authorized_keys
from flodl_wire.faults import Broken, Refused

OURS = b"AAAAC3NzaC1lZDI1NTE5AAAAIOurs"
OLD = b"AAAAC3NzaC1lZDI1NTE5AAAAIOld"
LINE = b'restrict,command="rrsync -ro /x" ssh-ed25519 ' + OURS + b" flodl-farm-lab"

foreign = st.lists(
    st.sampled_from(
        [
            b"ssh-rsa AAAAB3 me@laptop\n",
            b'from="10.0.0.0/8",command="echo \\"' + OURS + b'\\"" ssh-ed25519 AAAAother x\n',
            b"# " + LINE + b"\n",
            b"\r\n",
            b"\n",
            b"\xff\xfe not text \x00\n",
            b"ssh-ed25519 AAAAcrlf y\r\n",
            b"   \t ssh-ed25519 AAAAindented\n",
        ]
    ),
    max_size=6,
).map(b"".join)
own = st.sampled_from([b"", LINE + b"\n", b"ssh-ed25519 " + OURS + b" bare\n", b"  ssh-ed25519 " + OLD + b"\r\n"])


@given(before=foreign, mine=own, after=foreign)
def test_foreign_bytes_stay_and_ours_stands_once(before: bytes, mine: bytes, after: bytes) -> None:
    text = before + mine + after
    made = authorized_keys.edited(text, LINE, [OURS, OLD])
    assert authorized_keys.edited(made, LINE, [OURS, OLD]) == made
    assert authorized_keys.without(made, [OURS, OLD]) == before + after
    assert authorized_keys.standing(made, LINE, OURS, [OLD]) == "installed"


def test_a_file_without_a_last_line_end_gets_one_before_ours() -> None:
    assert authorized_keys.edited(b"ssh-rsa AAAA me", LINE, [OURS]) == b"ssh-rsa AAAA me\n" + LINE + b"\n"


@pytest.mark.parametrize(
    ("text", "state"),
    [(b"", "absent"), (LINE, "installed"), (b"ssh-ed25519 " + OURS, "differs"), (b"ssh-ed25519 " + OLD, "retired")],
)
def test_what_stands_there_is_told(text: bytes, state: str) -> None:
    assert authorized_keys.standing(text, LINE, OURS, [OLD]) == state


def test_mode_links_and_a_rival_are_respected(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles"
    real.write_bytes(b"ssh-rsa AAAA me\n")
    real.chmod(0o640)
    link = tmp_path / "authorized_keys"
    link.symlink_to(real)
    where = authorized_keys.place(str(link))
    authorized_keys.write(where, real.read_bytes(), b"new\n")
    assert link.is_symlink() and real.read_bytes() == b"new\n" and real.stat().st_mode & 0o777 == 0o640
    with pytest.raises(Broken, match="somebody else"):
        authorized_keys.write(where, b"what it was\n", b"newer\n")
    assert real.read_bytes() == b"new\n" and sorted(os.listdir(tmp_path)) == ["authorized_keys", "dotfiles"]


@pytest.mark.parametrize("path", ["/etc/ssh/authorized_keys.d/me", "/etc/ssh/../ssh/x", "LINK/x", "MISSING/x", "."])
def test_a_file_that_is_no_business_of_a_wizard_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "LINK").symlink_to("/etc/ssh")
    with pytest.raises(Refused, match="cannot install the key"):
        authorized_keys.place(path)
    assert os.listdir(tmp_path) == ["LINK"]
