"""What the integration tests start from: projects that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.project import Project

Make = Callable[..., Project]


@pytest.fixture
def project(tmp_path: Path, free_port: int) -> Iterator[Make]:
    """`project(name={"run": …}, …)` makes a project with these commands; what it started is ended behind the test."""
    made: list[Project] = []

    def make(*, ranks: int = 2, folder: str = "project", **commands: dict[str, Any]) -> Project:
        made.append(Project(tmp_path / folder, free_port, commands, ranks))
        return made[-1]

    yield make
    for each in made:
        each.end()
