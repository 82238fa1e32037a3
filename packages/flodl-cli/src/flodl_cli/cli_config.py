"""`fdl config show [--json]`: the merged config, with the file each value came from."""

from __future__ import annotations

import json
import sys

from flodl_cli import manifest, project_files
from flodl_cli.command_line import CommandLine
from flodl_cli.node import Node, dotted, leaves
from flodl_cli.project_files import Project
from flodl_cli.suggest import did_you_mean
from flodl_wire import exits
from flodl_wire.faults import Fault, Refused, usage

INLINE = 80  # a list of scalars stays on its line up to here
SECRETS = ("token",)  # shown as dots in the text, which people paste into questions

HELP = """\
usage: fdl [@env] config show [--json]

Shows the merged config and the file each value came from, also when something in it is wrong
(exit 1 then, with the reason). The token is shown as dots.

  --json   one document: the config as the tools take it (`--config FILE`), `manifest`, `env_name`,
           and `sources` (path of each value -> file:line); the token stands in it
"""


def main(line: CommandLine) -> int:
    if any(word in ("-h", "--help") for word in line.rest):
        print(HELP, end="")
        return exits.DONE
    words = [word for word in line.rest if word != "--json"]
    if words != ["show"]:
        hint = (
            f"; did you mean `fdl config {did_you_mean(words[0], ['show'])}`?"
            if words and did_you_mean(words[0], ["show"])
            else ""
        )
        raise usage(
            "cannot do `fdl config" + "".join(" " + word for word in words) + "`",
            "it only knows `show`" + hint,
            "fdl config show [--json]",
        )
    env = project_files.chosen_env(line.env)
    project = project_files.load(project_files.start_folder(), env)
    if project is None:
        way = project_files.way_to_a_manifest(project_files.start_folder())
        raise Refused("no-project", "cannot show a config", "no fdl.yml lies here or above", way)
    print(as_json(project) if "--json" in line.rest else as_text(project))
    try:
        manifest.commands_of(project)
        cluster = project.cluster()
        if cluster is not None:
            from flodl_cli import cluster_block  # msgspec: only where there is a block to judge

            cluster_block.parse(cluster)
    except Fault as fault:  # shown all the same: this command is how one finds out what is wrong
        print(f"fdl: {fault.render()}", file=sys.stderr)
        return exits.NOT_DONE
    return exits.DONE


def as_json(project: Project) -> str:
    """One document: the merged config, `manifest`, `env_name` and `sources` (path of a value → file:line).

    A tool that is used without fdl takes it as `--config FILE`.
    """
    document = project.config.plain()
    document["manifest"] = project.manifest
    if project.env is not None:
        document["env_name"] = project.env
    document["sources"] = {dotted(path): node.place() for path, node in leaves(project.config)}
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False)


def as_text(project: Project) -> str:
    """YAML with the file of each value as a comment, all comments in one column."""
    rows: list[tuple[str, str]] = []
    _rows(project.config, 0, rows)
    width = max((len(text) for text, source in rows if source and len(text) <= INLINE), default=0)
    lines = [f"# {' + '.join(project.shown(path) for path in project.layers)} in {project.root}"]
    lines += [f"{text:<{width}}  # {source}" if source else text for text, source in rows]
    return "\n".join(lines)


def _rows(node: Node, depth: int, rows: list[tuple[str, str]]) -> None:
    assert isinstance(node.value, dict)
    pad = "  " * depth
    for key, child in node.value.items():
        name = _scalar(key)
        if isinstance(child.value, dict) and child.value:
            rows.append((f"{pad}{name}:", ""))
            _rows(child, depth + 1, rows)
        elif key in SECRETS and isinstance(child.value, str):
            rows.append((f"{pad}{name}: ••••••••", child.place()))
        elif isinstance(child.value, list):
            _list_rows(f"{pad}{name}:", child, depth, rows)
        else:
            rows.append((f"{pad}{name}: {_scalar(child.value) if child.value != {} else '{}'}", child.place()))


def _list_rows(head: str, node: Node, depth: int, rows: list[tuple[str, str]]) -> None:
    assert isinstance(node.value, list)
    if not any(isinstance(item.value, (dict, list)) for item in node.value):
        inline = f"{head} [{', '.join(_scalar(item.value) for item in node.value)}]"
        if len(inline) <= INLINE:
            rows.append((inline, node.place()))
            return
    rows.append((head, ""))
    pad = "  " * (depth + 1)
    for item in node.value:
        below: list[tuple[str, str]] = []
        if isinstance(item.value, dict) and item.value:
            _rows(item, depth + 2, below)
        elif isinstance(item.value, list):
            _list_rows(f"{pad}  ", item, depth + 1, below)
        else:
            below.append((f"{pad}  {_scalar(item.value)}", item.place()))
        first, source = below[0]
        rows.append((f"{pad}- {first.strip()}", source))
        rows += below[1:]


def _scalar(value: object) -> str:
    """A scalar as YAML reads it back: quoted only where YAML would take it for something else."""
    import yaml

    if isinstance(value, str):
        if value and value.isprintable() and yaml.safe_load(f"a: {value}\n" if _plain(value) else "") == {"a": value}:
            return value
        return json.dumps(value)
    return json.dumps(value)


def _plain(value: str) -> bool:
    return (
        value.strip() == value
        and not any(sign in value for sign in (": ", " #", "\n"))
        and value[0] not in "&*!|>%@`\"'[]{},?-:#"
    )
