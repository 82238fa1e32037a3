"""docs/manifest.md names every key that a manifest may hold, docs/commands.md every word. (Its help texts are compared
by `make docs`.)
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flodl_cli import manifest
from flodl_cli.verbs import BUILTINS, VERBS
from flodl_wire.config import Cluster, Controller, JoinWindow, Ssh, Worker
from flodl_wire.modes import MODES

DOCS = Path(__file__).parents[3] / "docs"

KEYS = {
    *manifest.MANIFEST_KEYS,
    *manifest.COMMAND_KEYS,
    *(field for struct in (Cluster, Controller, JoinWindow, Ssh, Worker) for field in struct.__struct_fields__),
}


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_stands_on_the_page(key: str) -> None:
    assert re.search(rf"`{re.escape(key)}`", (DOCS / "manifest.md").read_text())


def test_every_verb_and_builtin_stands_on_the_page() -> None:
    text = (DOCS / "commands.md").read_text()
    for mode in MODES:
        assert f"`{mode}`" in text
    for word in VERBS:
        assert f"`fdl {word}" in text
    for word in BUILTINS:
        assert re.search(rf"fdl (\[@env\] )?{word}|^  {word} ", text, re.MULTILINE)
