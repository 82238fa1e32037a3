"""`--deep` against the torch that is installed here."""

from __future__ import annotations

from flodl_probe.checks.deep import check_deep
from flodl_probe.facts import Facts
from flodl_probe.question import Question
from flodl_probe.reading import deep_run


def test_torch_says_itself_what_it_can_do() -> None:
    found = deep_run.read(None, {}, None, 100)
    assert found.version and found.failure == "" and found.reduce == ""
    verdict = check_deep(Facts(Question(devices="cpu:1"), deep=found))
    assert [one.level for one in verdict] == ["ok" if not found.devices else "error"]
