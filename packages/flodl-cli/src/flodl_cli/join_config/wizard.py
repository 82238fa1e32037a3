"""The wizard from its answers to its report: read what stands, decide, look at this box, render, write, install."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from flodl_cli.join_config import farm as farms
from flodl_cli.join_config import (
    files,
    freshness,
    gathering,
    installing,
    key_line,
    key_pair,
    overlay,
    preflight,
    project,
    rendering,
    report,
    slips,
    standing,
    validity,
)
from flodl_cli.join_config.asking import Asker
from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import Controller, Farm
from flodl_cli.join_config.files import SECRET, Change
from flodl_cli.join_config.key_pair import Pair
from flodl_cli.join_config.preflight import Finding
from flodl_cli.join_config.project import Seen
from flodl_cli.join_config.report import FileState, Report
from flodl_cli.join_config.standing import Standing
from flodl_cli.join_config.steps import steps
from flodl_wire.faults import Fault, Refused

PLACEHOLDER = Pair("", "ssh-ed25519 (made when this is run without --dry-run)")


@dataclass(frozen=True)
class Wish:
    """What was asked for. None is "not said"."""

    label: str
    controller: str | None = None
    door: str | None = None
    regen: bool = False
    install_key: bool = False
    authorized_keys: str | None = None
    cloud_init: bool = False
    dry_run: bool = False
    as_json: bool = False
    yes: bool = False


@dataclass
class Plan:
    """A farm as it will stand."""

    farm: Farm
    pair: Pair
    retired: list[str]
    overlay: Change | None  # None: the user's own, not to be edited
    overlay_state: dict[str, str]
    credentials: dict[str, str]


def run(wish: Wish, asker: Asker) -> Report:
    """Raises Fault; files are then as they were, but for those of steps that had been reported."""
    seen = project.look(wish.label)
    with _alone(seen.root):
        there = standing.read(seen.root, wish.label)
        controller, door = _decide(wish, there, asker, seen)
        asker.check()
        if there.pair is not None and not (wish.regen or wish.dry_run):
            again = "another key and token, so that workers with the old ones stay out"
            wish = replace(wish, regen=asker.consent(again))
        served, data = farms.check_path(seen.served, "the served folder"), farms.check_path(seen.data, "data_path")
        root = farms.check_path(seen.root, "the project's folder")
        facts = gathering.gather(controller.port, [served, data], f"flodl-{wish.label}.conf")
        farm = Farm(
            label=wish.label,
            root=root,
            controller=controller,
            door=door,
            token="",
            public_key="",
            served=served,
            data=data,
            program=seen.program or farms.DEFAULT_PROGRAM,
            command=_command(seen, there),
            run_port=seen.run_port,
            publishes=seen.publishes or (there.overlay is None and door == "b" and bool(seen.program)),
            rrsync=facts.rrsync or "/usr/bin/rrsync",
            nologin=facts.nologin or "/usr/sbin/nologin",
        )
        findings = preflight.preflight(farm, facts)
        if not wish.as_json:
            print(report.findings_text(findings), flush=True)
        plan = _credentials(wish, farm, there, seen, asker)
        changes = _render(plan, facts, wish, there)
        states = [FileState(_shown(each.path, root), files.state(each), each.mode == SECRET) for each in changes]
        old = rendering.stale(farm, changes)
        states += [FileState(_shown(path, root), "removed") for path in old]
        if not wish.dry_run:
            files.write_all(changes)
            for path in old:
                os.unlink(path)
        install = None if wish.dry_run else _install(wish, plan, asker, facts)
    return _report(wish, plan, there, seen, facts, findings, states, install)


def standing_farm(label: str) -> Farm:
    """The farm as it stands, to be looked at. Raises Refused when there is none."""
    seen = project.look(label)
    there = standing.read(seen.root, label)
    if there.controller is None or there.pair is None:
        known = ", ".join(standing.labels(seen.root)) or "none"
        raise Refused(
            "no-farm", f"cannot try the door of {label}", f"there is no such farm here; farms: {known}",
            f"fdl join-config {label}",
        )  # fmt: skip
    return Farm(
        label=label,
        root=seen.root,
        controller=there.controller,
        door=there.door,
        token="",
        public_key=there.pair.public,
        served=seen.served,
        data=seen.data,
        run_port=seen.run_port,
    )


def _decide(wish: Wish, there: Standing, asker: Asker, seen: Seen) -> tuple[Controller, str]:
    """Flags, else what the farm has, else questions with defaults. Raises Refused."""
    user = gathering.user_name()
    if wish.controller is not None:
        controller = farms.parse_controller(wish.controller, user)
    elif there.controller is not None:
        controller = there.controller
    else:
        port = farms.SSH_PORT if sys.platform == "darwin" else farms.DOOR_PORT
        proposed = str(Controller(user or "me", _own_name(), port))
        question = "where workers dial, as user@host:port of this box's sshd"
        controller = asker.ask(question, proposed, "--controller", lambda text: farms.parse_controller(text, user))
    if wish.door is not None:
        return controller, farms.check_door(wish.door)
    if there.door:
        return controller, there.door
    choices = "\n".join(f"  {name:<8} {line}" for name, line in farms.DOORS.items())
    return controller, asker.ask(f"doors:\n{choices}\nwhich", "b", "--door", farms.check_door)


def _own_name() -> str:
    """A name or address by which others may know this box."""
    name = socket.gethostname()
    return name if re.fullmatch(r"[A-Za-z0-9.-]+", name) and name != "localhost" else "127.0.0.1"


def _command(seen: Seen, there: Standing) -> str:
    if there.overlay is None:
        return overlay.command_name(seen)
    return seen.name if seen.name in seen.windows else seen.windows[0] if seen.windows else ""


def _credentials(wish: Wish, farm: Farm, there: Standing, seen: Seen, asker: Asker) -> Plan:
    """Kept where they are there, made where not, rotated together when asked for."""
    old = there.pair
    rotate = wish.regen and (old is not None or there.overlay is not None)
    pair = old if old is not None and not rotate else PLACEHOLDER if wish.dry_run else key_pair.make(farm.label)
    retired = list(there.retired)
    if old is not None and rotate:
        retired = [*dict.fromkeys([*retired, key_line.blob_of(old.public)])]
    own = there.overlay.token if there.overlay else ""
    standing_token = own or there.token
    token = standing_token if standing_token and not rotate else key_pair.token()
    farm = replace(farm, token=token, public_key=pair.public)
    change, state = _overlay(farm, there, seen)
    verb = "rotated" if rotate else "kept"
    return Plan(
        farm,
        pair,
        retired,
        change,
        state,
        {"key": verb if old is not None else "made", "token": verb if standing_token else "made"},
    )


def _overlay(farm: Farm, there: Standing, seen: Seen) -> tuple[Change | None, dict[str, str]]:
    path = there.overlay_path
    state = {"path": _shown(path, farm.root), "state": "unchanged", "note": ""}
    if there.overlay is None:
        text = overlay.scaffold(farm, seen)
        validity.check_overlay(text, farm)
        return Change(path, text.encode(), SECRET), {**state, "state": "new", "note": "secret: mode 600"}
    if not there.overlay.token:
        note = f"yours, without a token: what belongs into it stands in .fdl/{farm.label}/overlay-snippet.yml"
        return Change(_snippet_path(farm), overlay.snippet(farm).encode(), SECRET), {**state, "note": note}
    if there.overlay.token == farm.token:
        return None, {**state, "note": "yours; its token is the farm's"}
    text = overlay.with_token(there.overlay, farm.token)
    return Change(path, text.encode(), 0o644), {**state, "state": "changed", "note": "the token alone"}


def _snippet_path(farm: Farm) -> str:
    return os.path.join(farms.folder(farm.root, farm.label), "overlay-snippet.yml")


def _render(plan: Plan, facts: Facts, wish: Wish, there: Standing) -> list[Change]:
    # the notes on disk are for every state of this box, so that doing the steps does not change them
    found = steps(plan.farm, facts, [], plan.farm.command, installed=False)
    changes = rendering.render(
        plan.farm, plan.pair, plan.retired, found, facts, with_cloud_init=wish.cloud_init or there.cloud_init
    )
    validity.check_worker(changes)
    return changes if plan.overlay is None else [plan.overlay, *changes]


def _install(wish: Wish, plan: Plan, asker: Asker, facts: Facts) -> installing.Installed | None:
    """None when nobody wanted it."""
    if not wish.install_key:
        with contextlib.suppress(Fault):
            if installing.look(plan.farm, plan.retired, wish.authorized_keys).state == "kept":
                return installing.look(plan.farm, plan.retired, wish.authorized_keys)
        where = wish.authorized_keys or "~/.ssh/authorized_keys"
        if wish.authorized_keys is None and gathering.user_name() != plan.farm.controller.user:
            return None
        if not asker.consent(f"put the key's line into {where}"):
            return None

    def may_chmod(lines: list[str]) -> bool:
        return wish.yes or asker.consent("others may write there, so sshd ignores it; " + "; ".join(lines))

    return installing.install(plan.farm, plan.retired, wish.authorized_keys, gathering.user_name(), may_chmod)


def _report(
    wish: Wish,
    plan: Plan,
    there: Standing,
    seen: Seen,
    facts: Facts,
    findings: list[Finding],
    states: list[FileState],
    install: installing.Installed | None,
) -> Report:
    farm = plan.farm
    installed = install is not None and install.state in ("installed", "kept")
    notes = slips.about_git(plan.farm) + slips.about_names(plan.farm, there)
    if there.overlay is not None and seen.host not in ("", farm.controller.host):
        notes.append(f"{plan.overlay_state['path']} is yours and still says controller.host: {seen.host}")
    if plan.credentials["key"] == "rotated" and not installed:
        notes.append("the old key's line is still let in by sshd until the new one is installed (--install-key)")
    overlay_path = plan.overlay_state["path"]
    made = None if plan.pair is PLACEHOLDER else there.key_made if plan.credentials["key"] == "kept" else time.time()
    return Report(
        farm=report.farm_dict(farm),
        overlay=plan.overlay_state,
        credentials=plan.credentials,
        files=[each for each in states if each.path != overlay_path],
        freshness=freshness.look(farm, facts, plan.retired, made, wish.authorized_keys, gathering.user_name()),
        preflight=findings,
        install=install,
        steps=steps(farm, facts, findings, farm.command, installed=installed, here=os.getcwd()),
        notes=notes,
        dry_run=wish.dry_run,
    )


def _shown(path: str, root: str) -> str:
    return os.path.relpath(path, root)


@contextlib.contextmanager
def _alone(root: str) -> Iterator[None]:
    """Two wizards at once would mix two keys. The lock is on the folder itself, so that it leaves no file."""
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Refused(
            "busy", "cannot set up a farm", "another `fdl join-config` is at work in this project", "wait for it"
        ) from None
    finally:
        os.close(descriptor)
