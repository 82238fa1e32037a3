"""The same over links of 50 Mbit/s and 20 ms each way."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from integration.cluster import Cluster, three
from integration.project import rank_command
from tools.lab import Lab, Link

# 250,000 numbers are 1 MB: 0.16 s each way at 50 Mbit/s
PLAIN = {"run": rank_command("plain_rank.py", "--numbers", "250000", "--epochs", "2"), "mode": "cpu_cadence"}


@pytest.fixture
def slow(lab_possible: None) -> Iterator[Cluster]:
    with Lab(three(Link(rate="50mbit", delay_s=0.02))) as lab:
        hosts = Cluster(lab)
        yield hosts
        hosts.end()


def test_a_run_trains_over_slow_links(slow: Cluster) -> None:
    slow.write({"train": PLAIN})
    run = slow.start("@cluster", "train", env={"FLODL_NET_TIMEOUT_SCALE": "1"})
    run.done(within=110)
    assert run.result()["samples"] == 2 * 240
    run.nothing_left(10)
