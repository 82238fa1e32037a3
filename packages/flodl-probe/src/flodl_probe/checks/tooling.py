"""What has to be installed for the role this box has; the project's folder."""

from __future__ import annotations

from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning
from flodl_probe.install_words import install

TOOLS = "tools"
PROJECT = "project"
DOCKER = "docker"


def check_tools(facts: Facts) -> list[Finding]:
    found = []
    for name, place in facts.tools.items():
        if place is None:
            found.append(
                error(
                    TOOLS,
                    f"{name} is not installed",
                    _purpose(name, facts),
                    install(name, facts.box.manager, facts.box.root),
                )
            )
    return found or ([ok(TOOLS, ", ".join(sorted(facts.tools)))] if facts.tools else [])


def _purpose(name: str, facts: Facts) -> str:
    if name in ("flodl-agent", "flodl-planes"):
        return "neither in the project's .venv/bin, nor in ~/.local/bin, nor on the PATH of a login shell"
    return "the join: block needs it" if name in facts.asked.tools else "other hosts are started over it"


def check_project(facts: Facts) -> list[Finding]:
    asked = facts.asked
    if asked.path is None or asked.role != "worker":
        return []
    if facts.project is None:
        fix = "put the project there (git clone, rsync, a shared mount), or mend path: in fdl.yml"
        return [error(PROJECT, f"there is no folder {asked.path}", "path: names it", fix)]
    if asked.manifest_hash and facts.manifest_hash != asked.manifest_hash:
        why = "its fdl.yml is another file than the controller's" if facts.manifest_hash else "it holds no fdl.yml"
        return [error(PROJECT, f"cannot run in {facts.project}", why, "bring that copy of the project up to date")]
    return [ok(PROJECT, facts.project)]


def check_docker(facts: Facts) -> list[Finding]:
    docker, box = facts.docker, facts.box
    if docker is None:
        return []
    if docker.engine is None:
        fix = install("docker", box.manager, box.root)
        if "not installed" not in docker.why:
            fix = "start it (sudo systemctl start docker), and let this user use it (sudo usermod -aG docker $USER)"
        return [error(DOCKER, "the Docker engine does not answer", docker.why, fix)]
    found = []
    if not docker.compose:
        found.append(
            error(DOCKER, "docker compose is missing", "the service is started by it", "install docker-compose-plugin")
        )
    if any(gpu.vendor == "nvidia" for gpu in facts.gpus) and not docker.toolkit:
        fix = install("nvidia-ctk", box.manager, box.root)
        found.append(warning(DOCKER, "nvidia-ctk is missing", "containers would see no NVIDIA GPU", fix))
    return found or [ok(DOCKER, f"engine {docker.engine}; torch and NCCL are the image's ({facts.asked.docker})")]
