"""What the integration tests start from: projects and clusters that leave nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.browser import chromium
from integration.cluster import Cluster, three
from integration.project import Project
from integration.quiet import room
from tools.lab import Lab, missing

Make = Callable[..., Project]
OwnNetwork = Callable[[Path], list[str]]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "alone: measures the box itself; no other integration test runs beside it")


@pytest.hookimpl(wrapper=True, tryfirst=True)  # around the timer of pytest-timeout: waiting for the room costs no test
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    with room(alone=item.get_closest_marker("alone") is not None):
        return (yield)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Debian's Chromium, for all tests of a file."""
    with chromium() as made:
        yield made


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


@pytest.fixture(scope="session")
def lab_possible() -> None:
    """Skips where no lab can be made."""
    if why := missing():
        pytest.skip(f"several hosts on one machine: {why}")


@pytest.fixture
def own_network() -> Iterator[OwnNetwork]:
    """`own_network(folder)`: words to put in front of a command, so that it runs in `folder` on a network of its own,
    where port 1337 is free. No words where that needs root that we lack."""
    if missing():
        yield lambda folder: []
        return
    with Lab(["desk"]) as lab:
        yield lambda folder: lab.hosts["desk"].command(cwd=folder)


@pytest.fixture
def cluster(lab_possible: None) -> Iterator[Cluster]:
    with Lab(three()) as lab:
        hosts = Cluster(lab)
        yield hosts
        hosts.end()
