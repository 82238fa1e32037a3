"""docs/two-boxes.md, done block by block on three hosts."""

from __future__ import annotations

import re
from pathlib import Path

from integration.cluster import Cluster

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "two-boxes.md"
BLOCK = re.compile(r"^```(\w+) ?(.*?)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_page_leads_a_user_from_nothing_to_a_trained_model_on_three_hosts(cluster: Cluster) -> None:
    blocks = BLOCK.findall(PAGE.read_text())
    assert next(words for kind, words, _ in blocks if kind == "sh") == "install"
    for host in ("desk", "tower", "attic"):
        (cluster.lab.home(host) / "flodl").symlink_to(ROOT)  # what the install block would have cloned and set up
    for kind, words, text in blocks:
        if kind == "yaml":
            (cluster.lab.home("desk") / "digits" / words).write_text(text)
        elif words != "install":
            for host in words.split():
                done = cluster.lab.run(host, "bash", "-euo", "pipefail", "-c", text, timeout=110)
                assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    left = [str(process) for process in cluster.inventory()]
    assert not left
