"""Two roads to ranks on this box beside `fdl train`: in a container, and from a script that holds its own cluster."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from integration.conftest import Make
from integration.project import rank_command

SCRIPT = """\
import json, sys
from flodl_planes import ClusterBuilder, Role, dispatch, local_cluster

ClusterBuilder("127.0.0.1", path={path!r}, port={port}).worker({host!r}, "cpu:2", env={{"ODD": {odd!r}}}).export()
role = dispatch(mode="torch")
here = local_cluster()
import os
said = {{"role": role.value, "argv": sys.argv[1:], "rank": here and here.rank, "odd": os.environ.get("ODD")}}
print(json.dumps(said), flush=True)
"""


def test_ranks_in_a_container_of_this_box_come_in_over_the_net_and_train(project: Make, docker: Any) -> None:
    """A recording stand-in for docker: the words are its, the processes run here."""
    made = project(train={"run": rank_command("plain_rank.py"), "mode": "cpu_cadence"})
    (made.folder / "compose.yaml").write_text("services: {dev: {image: x}}\n")
    block = made.one_box(2)
    block["workers"][0]["docker"] = "dev"
    made.write("fdl.one.yml", {"cluster": block})
    path = f"{docker.folder}:{made.environment()['PATH']}"
    run = made.start("@one", "train", env={"PATH": path})
    run.done()
    assert run.result()["samples"] == 2 * 240
    (inside,) = docker.runs
    assert (inside["service"], inside["argv"][:2]) == ("dev", ["sh", "-c"])
    assert "network_mode: host" in run.text, "127.0.0.1 is the container's own otherwise, and fdl says so"
    run.nothing_left(10)


def test_a_script_run_by_hand_opens_the_cluster_that_it_holds(project: Make) -> None:
    made = project()
    odd = "a b'$X\n\u2713"
    host = made.one_box(2)["workers"][0]["host"]
    script = made.folder / "train.py"
    script.write_text(SCRIPT.format(path=str(made.folder), port=made.port, host=host, odd=odd))
    words = ["--lr", "-1", "", "a b"]
    done = subprocess.run(
        [sys.executable, str(script), *words], cwd=made.folder, env=made.environment(), capture_output=True, text=True,
        stdin=subprocess.DEVNULL, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = [re.match(r"\[\S+:(\d+)\] (\{.*)", line) for line in done.stdout.splitlines()]
    said = {int(match[1]): json.loads(match[2]) for match in found if match}
    assert said == {rank: {"role": "rank", "argv": words, "rank": rank, "odd": odd} for rank in (0, 1)}
