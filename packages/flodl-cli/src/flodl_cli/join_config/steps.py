"""What is left for a person to do, in order. Commands read the farm's files instead of repeating them. Pure."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from flodl_cli.join_config import unit
from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import Farm
from flodl_cli.join_config.preflight import Finding, reload_line, sudo


@dataclass(frozen=True)
class Step:
    """`where`: controller, or worker (typed on the controller too, WORKER being the box as ssh knows it)."""

    title: str
    commands: list[str]
    where: str = "controller"


def steps(
    farm: Farm, facts: Facts, findings: Sequence[Finding], command: str, *, installed: bool, here: str | None = None
) -> list[Step]:
    """`command`: of the project, that opens the window; "" for a placeholder. `installed`: the key is let in. `here`:
    where the user stands.
    """
    label = shlex.quote(farm.label)
    files = os.path.join(".fdl", farm.label)
    found: list[Step] = []
    if here is not None and os.path.realpath(here) != os.path.realpath(farm.root):
        found.append(Step("go to the project's folder", [f"cd {shlex.quote(farm.root)}"]))
    mend = [line for each in findings if each.state in ("gap", "trap") and each.name != "folder" for line in each.fix]
    if mend:
        found.append(Step("mend what was found above", mend))
    if farm.guarded and not facts.launchd_holds:
        found.append(
            Step(
                "give sshd the door's port and its guard",
                [
                    f"{sudo(facts)}install -m 644 {files}/{farm.dropin_name} /etc/ssh/sshd_config.d/",
                    f"{sudo(facts)}sshd -t && {reload_line(facts)}"
                    if not facts.root
                    else f"sshd -t && {reload_line(facts)}",
                ],
            )
        )
    if not installed:
        mine = not facts.user or facts.user == farm.controller.user
        theirs = "" if mine else f" --authorized-keys ~{farm.controller.user}/.ssh/authorized_keys"
        found.append(
            Step("let the farm's key in, for its door alone", [f"fdl join-config {label} --install-key{theirs}"])
        )
    if farm.door == "b":
        line = f"fdl @{farm.label} publish"
        if not farm.publishes:
            line += f" {shlex.quote('file://' + farm.root)} --bin {farm.program}    # the script that workers run"
        found.append(Step("put the run where workers pull it", [line]))
    elif farm.door == "a" and any(each.name == "folder" and each.state == "gap" for each in findings):
        found.append(Step("put the data where workers mount them", [f"{sudo(facts)}mkdir -p {shlex.quote(farm.data)}"]))
    found.append(Step("try the door with the farm's own key", [f"fdl join-config {label} --test"]))
    found.append(
        Step(
            "equip each worker; flodl must be installed there",
            [
                f"ssh WORKER 'umask 077; mkdir -p .flodl/{farm.label} {farm.label}'",
                f"scp {files}/keys/join_key WORKER:.flodl/{farm.label}/join_key",
                f"scp {files}/worker.yml WORKER:{farm.label}/fdl.yml",
                *([] if farm.door == "b" else [f"scp {shlex.quote(farm.program)} WORKER:{farm.label}/"]),
                f"ssh -t WORKER 'cd {farm.label} && fdl join'    # dials until there is a run; Ctrl-C ends it",
            ],
            "worker",
        )
    )
    found.append(
        Step(
            f"or let it boot into the farm: with {files}/{farm.unit_name} "
            f"({unit.HOME}/{farm.label}, {unit.VENV}), or as an instance",
            [f"fdl join-config {label} --cloud-init    # writes {files}/cloud-init.yml, user-data with the key inside"],
            "worker",
        )
    )
    name = command or "COMMAND"
    found.append(
        Step(
            "open the window, see who is in, begin",
            [f"fdl @{farm.label} {name}", f"fdl @{farm.label} status", f"fdl @{farm.label} start"],
        )
    )
    return found


def as_text(found: Sequence[Step], bullet: str = "") -> str:
    lines = []
    for number, step in enumerate(found, 1):
        lines.append(f"{number}. {step.title}")
        lines += [f"{bullet}     {command}" for command in step.commands]
    return "\n".join(lines)
