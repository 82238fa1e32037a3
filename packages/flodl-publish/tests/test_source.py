"""Specs, as people write them well and badly."""

from __future__ import annotations

import pytest

from flodl_publish import source
from flodl_wire.faults import Refused


@pytest.mark.parametrize(
    ("text", "kind", "path", "host", "user", "port"),
    [
        ("file:///home/op/my train", "file", "/home/op/my train", "", "", None),
        ("file:///home/op/x/", "file", "/home/op/x", "", "", None),
        ("rsync://op@desk:/home/op/x", "rsync", "/home/op/x", "desk", "op", None),
        ("rsync://10.0.0.1:2222:/tree", "rsync", "/tree", "10.0.0.1", "", 2222),
        ("rsync://op@[fd00::1]:/tree", "rsync", "/tree", "fd00::1", "op", None),
    ],
)
def test_a_spec_says_where(text: str, kind: str, path: str, host: str, user: str, port: int | None) -> None:
    got = source.parse(text)
    assert (got.kind, got.path, got.host, got.user, got.port) == (kind, path, host, user, port)


def test_a_git_spec_is_a_url_and_a_ref() -> None:
    got = source.parse("git+https://github.com/me/train#v3")
    assert (got.kind, got.url, got.ref) == ("git", "https://github.com/me/train", "v3")
    assert source.parse("git+ssh://git@host/x#feature/a").ref == "feature/a"
    assert source.parse("git+file:///srv/x.git#" + "a" * 40).url == "file:///srv/x.git"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "blank"),
        ("file:///a\nb", "control"),
        ("my-train", "no scheme"),
        ("/home/op/x", "no scheme"),
        ("op@desk:/x", "no scheme"),
        ("file://relative/x", "not absolute"),
        ("file://", "not absolute"),
        ("http://host/x", "no scheme http://"),
        ("rsync://desk/home/op", "host, colon, absolute path"),
        ("rsync://desk:relative", "host, colon, absolute path"),
        ("rsync://desk:99999:/x", "no TCP port"),
        ("rsync://-oProxyCommand=x:/x", ""),
        ("git+https://host/x", "no ref"),
        ("git+https://host/x#", "no ref"),
        ("git+https://host/x#--upload-pack=x", "no name"),
        ("git+https://host/x#a..b", "no name"),
        ("git+http://host/x#v1", "git+https"),
        ("git+file://x#v1", "not absolute"),
        ("git+ssh://-oProxyCommand=x/y#v1", "no repository"),
    ],
)
def test_a_spec_that_could_mean_something_else_is_refused(text: str, why: str) -> None:
    with pytest.raises(Refused) as caught:
        source.parse(text)
    assert caught.value.code == "bad-source"
    assert why in caught.value.why


def test_a_password_is_never_shown() -> None:
    assert source.parse("git+https://me:s3cret@host/x#v1").origin == "git+https://host/x#v1"
    with pytest.raises(Refused) as caught:
        source.parse("git+https://me:s3cret@host/x")
    assert "s3cret" not in caught.value.render()
