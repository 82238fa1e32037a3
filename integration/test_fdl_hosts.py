"""What fdl composes for other hosts: words and variables over ssh and in a container, and what was built for them.

The docker here is a recording stand-in (conftest.py): no engine is asked, the words are checked and run on the host.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from integration.cluster import Cluster, three
from integration.project import BIN
from integration.running import Running
from integration.test_words import ODD
from tools.lab import Lab

SHOW = """\
import json, os, sys
try:
    from digits_of_mine import WHERE
except ImportError:
    WHERE = ""
names = json.loads(os.environ.get("NAMES", "[]"))
said = {"argv": sys.argv[1:], "env": {name: os.environ.get(name) for name in names}, "built": WHERE,
        "python": sys.executable, "cwd": os.getcwd()}
print(json.dumps(said), flush=True)
"""
AGENT = """\
#!/bin/sh
'''exec' "{python}" "$0" "$@"
' '''
import sys
from {module}.main import main
sys.exit(main())
"""


@pytest.fixture
def hosts(lab_possible: None) -> Iterator[Cluster]:
    with Lab(three()) as lab:
        made = Cluster(lab)
        yield made
        made.end()


def said(run: Running) -> dict[int, Any]:
    """What show.py printed, by rank."""
    found = [re.match(r"\[\S+:(\d+)\] (\{.*)", line) for line in run.out]
    return {int(match[1]): json.loads(match[2]) for match in found if match}


def venv_with_a_space(folder: Path) -> Path:
    """An environment in a folder whose name has a space, as pip writes its scripts there; its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    (own,) = BIN.parent.glob("lib/python3*/site-packages")
    (site / "ours.pth").write_text(f"import site; site.addsitedir({str(own)!r})\n")
    for tool in ("flodl-agent", "flodl-planes", "flodl-probe"):
        module = tool.replace("-", "_")
        (folder / "bin" / tool).write_text(AGENT.format(python=folder / "bin/python", module=module))
        (folder / "bin" / tool).chmod(0o755)
    return folder / "bin/python"


def test_words_and_variables_reach_ranks_over_ssh_and_in_a_container_byte_for_byte(hosts: Cluster, docker: Any) -> None:
    """One host by ssh, in a folder with spaces and umlauts and an environment in it; one whose agent is in a container;
    no locale anywhere."""
    tower = hosts.lab.home("tower") / "gör an"
    tower.mkdir()
    hosts.folders["tower"] = tower
    python = venv_with_a_space(tower / ".venv")
    attic = hosts.folders["attic"]
    (attic / "compose.yaml").write_text("services: {cuda: {image: x}}\n")
    for folder in hosts.folders.values():
        (folder / "sub dir").mkdir()
        (folder / "sub dir" / "show.py").write_text(SHOW)
        below = {"entry": "python show.py", "options": {"flag": True}, "append": ["--added", "a b"], "cluster": True}
        (folder / "sub dir" / "fdl.yml").write_text(json.dumps({**below, "mode": "torch"}))
    hosts.lab.sshd("attic", 2201, f"SetEnv=PATH={docker.folder}:/usr/local/bin:/usr/bin:/bin")
    overlay = hosts.overlay()
    overlay["env"] = {**ODD, "NAMES": json.dumps([*ODD, "WHO"]), "WHO": "cluster"}
    overlay["workers"][1] |= {
        "docker": "cuda", "env": {"WHO": "attic"},
        "ssh": {"port": 2201, "options": ["HostKeyAlias=attic"]},
    }  # fmt: skip
    hosts.write({"show": {"path": "sub dir", "env": {"WHO": "command"}}}, overlay)
    words = [*ODD.values(), "-v", "--help", "--", "@cluster", "--gpus"]
    run = hosts.start("@cluster", "show", *words, env={"LC_ALL": "C", "LANG": "C"})
    run.done()
    seen = said(run)
    assert sorted(seen) == [0, 1, 2]
    for rank, document in seen.items():
        host = "attic" if rank == 2 else "tower"
        assert document["argv"] == ["--flag", "--added", "a b", *words]
        assert document["env"] == {**ODD, "WHO": "attic" if rank == 2 else "command"}
        assert document["cwd"] == str(hosts.folders[host] / "sub dir")
    assert seen[0]["python"] == str(python), "the host's own, though its folder has a space"
    (inside,) = docker.runs
    assert inside["words"][:2] == ["compose", "-f"] and inside["service"] == "cuda"
    assert inside["env"] == ["FDL_ENV", "FLODL_HOST_NAME", "FLODL_NET_TIMEOUT_SCALE"]
    names = {pair.partition(":")[0] for pair in inside["overlay"][0]["services"]["cuda"]["extra_hosts"]}
    assert names <= {"tower", "attic"}
    assert not any(value and value in word for value in ODD.values() if len(value) > 6 for word in inside["words"])


PYPROJECT = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "digits-of-mine"
version = "1.0"

[tool.setuptools.packages.find]
where = ["src"]
"""


def test_what_is_built_here_is_used_by_every_host_at_its_own_place(hosts: Cluster) -> None:
    pytest.importorskip("setuptools")
    project = hosts.folder
    (project / "src/digits_of_mine").mkdir(parents=True)
    (project / "src/digits_of_mine/__init__.py").write_text("WHERE = __file__\n")
    (project / "pyproject.toml").write_text(PYPROJECT)
    (project / "show.py").write_text(SHOW)
    for host in ("tower", "attic"):  # one folder, mounted somewhere else by each
        place = hosts.lab.home(host) / f"mount of {host}"
        place.symlink_to(project)
        hosts.folders[host] = place
    pip = 'python -m pip install -q --no-deps --no-build-isolation --target "$FLODL_BUILD_SITE" .'
    show = {"run": "python show.py", "mode": "torch", "build": pip}
    overlay = hosts.overlay()
    hosts.write({"show": show}, overlay)
    run = hosts.start("@cluster", "show")
    run.done()
    built = [line for line in run.err if line.startswith("fdl: prebuild for ")]
    assert len(built) == 2 and all("built in" in line for line in built)
    for rank, document in said(run).items():
        host = "attic" if rank == 2 else "tower"
        site = hosts.folders[host] / "target/cluster" / host / "any/site"
        assert document["built"] == str(site / "digits_of_mine/__init__.py")
    assert not list(project.glob("build")) and not list(project.glob("src/*.egg-info")), "each builds in a place apart"
    again = hosts.start("@cluster", "show")
    again.done()
    assert sorted(line for line in again.err if "prebuild" in line) == [
        "fdl: prebuild for attic: unchanged",
        "fdl: prebuild for tower: unchanged",
    ]
    (project / "src/digits_of_mine/__init__.py").write_text("WHERE = = __file__\n")
    hosts.write({"show": {**show, "build": "echo cannot compile; exit 3"}}, overlay)
    failed = hosts.fdl("@cluster", "show")
    assert failed.returncode == 1
    assert "no host was dialled" in failed.stderr and "window open" not in failed.stderr
    left_out = hosts.start("--no-prebuild", "@cluster", "show")
    left_out.done()
    assert all(document["built"] for document in said(left_out).values()), "what was built before is used"
    assert "prebuild" not in left_out.text
    missing = {"run": "python show.py", "mode": "torch", "build": "true"}
    hosts.folders["attic"].unlink()  # and one that does not see the folder
    hosts.folders["attic"].mkdir()
    (hosts.folders["attic"] / ".venv").symlink_to(BIN.parent)
    hosts.write({"show": missing}, overlay)
    refused = hosts.start("@cluster", "show")
    refused.failed()
    assert "it does not see what was built for it" in refused.text
