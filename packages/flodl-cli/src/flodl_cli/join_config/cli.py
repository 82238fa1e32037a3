"""`fdl join-config LABEL`: a farm, set up once, on the controller."""

from __future__ import annotations

import argparse
import json
import sys

from flodl_cli import project_files
from flodl_cli.command_line import CommandLine
from flodl_cli.join_config import farm as farms
from flodl_wire import exits, outlets
from flodl_wire.faults import Refused, usage


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="fdl join-config",
        usage="fdl join-config LABEL [options]",
        description="Set up a farm on its controller, once: the overlay fdl.LABEL.yml, a key and a token, the line and "
        "the sshd_config drop-in of a guarded door, and what a worker needs to walk in, below .fdl/LABEL/. A re-run "
        "keeps all of it. `fdl @LABEL join-config` is the same.",
        epilog="Exit codes: 0 done (--test: the door holds), 1 refused (--test: it does not hold), 2 usage.",
        allow_abbrev=False,
    )
    add = made.add_argument
    add("label", nargs="?", metavar="LABEL", help="the farm's name; its overlay is fdl.LABEL.yml")
    add(
        "--controller", metavar="USER@HOST:PORT", help="where workers dial: this box's sshd, as they reach it (port 22)"
    )
    add("--door", metavar="b|a|nologin", help="; ".join(f"{name}: {line}" for name, line in farms.DOORS.items()))
    add("--install-key", action="store_true", help="put the key's line into your own ~/.ssh/authorized_keys")
    add("--authorized-keys", metavar="FILE", help="put it into this file instead")
    add("--cloud-init", action="store_true", help="write user-data for an instance, with the key inside")
    add("--regen", action="store_true", help="another key and token: workers with the old ones stay out")
    add("--test", action="store_true", help="try the door with the farm's own key, and change nothing")
    add("--list", action="store_true", help="the farms of this project")
    add("--dry-run", action="store_true", help="say what would be written")
    add("--yes", action="store_true", help="take ordinary defaults; installing the key is not one")
    add("--json", action="store_true", help="the report as one document; secrets as paths only")
    return made


def main(line: CommandLine) -> int:
    """Raises Fault."""
    flags = parser().parse_args(line.rest)
    _check(flags)
    if flags.list:
        from flodl_cli.join_config.listing import listing

        print(listing(as_json=flags.json))
        return exits.DONE
    label = _label(flags.label, line.env)
    return _test(label, as_json=flags.json) if flags.test else _set_up(label, flags)


def _label(typed: str | None, env: str | None) -> str:
    """The farm that is meant: the word, @LABEL, or FDL_ENV. Raises Refused."""
    if typed is not None and typed.startswith("@"):
        typed = typed[1:]
    if typed is not None and env is not None and typed != env:
        raise Refused(
            "two-farms", "cannot set up two farms at once", f"@{env} and {typed} disagree", "keep one of them"
        )
    found = typed or project_files.chosen_env(env)
    if not found:
        raise usage("cannot set up a farm", "it has no name", "fdl join-config lab; --list shows those that are there")
    return farms.check_label(found)


def _check(flags: argparse.Namespace) -> None:
    """Flags that contradict each other. Raises Refused."""
    given = [
        name
        for name in ("controller", "door", "install_key", "authorized_keys", "cloud_init", "regen", "dry_run", "yes")
        if getattr(flags, name) not in (None, False)
    ]
    words = ["--" + name.replace("_", "-") for name in given]
    for only in ("test", "list"):
        if getattr(flags, only):
            others = [word for word in words if word != "--yes"] + (["--list"] if only == "test" and flags.list else [])
            if others:
                raise _contradiction(f"--{only}", others[0], f"--{only} changes nothing")
    if flags.dry_run and flags.install_key:
        raise _contradiction("--dry-run", "--install-key", "a dry run writes nothing")
    if flags.authorized_keys is not None and not flags.install_key and (flags.yes or flags.json):
        why = "it names the file of a key that nobody is asked to install"
        raise Refused("usage", "cannot use --authorized-keys", why, "add --install-key")


def _contradiction(one: str, other: str, why: str) -> Refused:
    return Refused("usage", f"cannot use {one} and {other} together", why, "leave one of them out")


def _set_up(label: str, flags: argparse.Namespace) -> int:
    from flodl_cli.join_config import report, wizard
    from flodl_cli.join_config.asking import Asker

    at_terminal = sys.stdin.isatty() and sys.stderr.isatty() and not flags.json
    wish = wizard.Wish(
        label=label,
        controller=flags.controller,
        door=flags.door,
        regen=flags.regen,
        install_key=flags.install_key,
        authorized_keys=flags.authorized_keys,
        cloud_init=flags.cloud_init,
        dry_run=flags.dry_run,
        as_json=flags.json,
        yes=flags.yes,
    )
    done = wizard.run(wish, Asker(at_terminal=at_terminal, yes=flags.yes))
    if not flags.dry_run:
        outlets.work_is_done()
    print(json.dumps(done.as_dict()) if flags.json else report.render(done))
    unsafe = done.install is not None and done.install.chmod
    return exits.NOT_DONE if unsafe else exits.DONE


def _test(label: str, *, as_json: bool) -> int:
    from dataclasses import asdict

    from flodl_cli.join_config import report, trying, wizard

    farm = wizard.standing_farm(label)
    dialled, tried = trying.try_door(farm)
    if as_json:
        rows = [asdict(each) for each in tried]
        held = not any(each.state in ("OPEN", "SHUT") for each in tried)
        print(json.dumps({"farm": report.farm_dict(farm), "dialled": dialled, "held": held, "tried": rows}))
    else:
        print(report.door_text(farm, dialled, tried))
    return exits.NOT_DONE if any(each.state in ("OPEN", "SHUT") for each in tried) else exits.DONE
