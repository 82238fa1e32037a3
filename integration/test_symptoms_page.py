"""Every test that symptoms.md promises is there."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = HERE.parent / "packages"


def test_each_symptom_names_tests_that_exist() -> None:
    named = re.findall(r"`([\w/-]+\.py)::(test_\w+)`", (HERE / "symptoms.md").read_text(encoding="utf-8"))
    assert len(named) > 50
    lost = [
        f"{file}::{name}"
        for file, name in named
        if f"\ndef {name}(" not in ((PACKAGES if "/" in file else HERE) / file).read_text(encoding="utf-8")
    ]
    assert not lost
