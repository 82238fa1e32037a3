"""One of our verbs: the tool that answers it, with the project's config in its environment."""

from __future__ import annotations

import json
import os

from flodl_cli import project_files, sibling
from flodl_cli.command_line import CommandLine
from flodl_cli.extensions import tools_named
from flodl_cli.node import Node
from flodl_cli.project_files import Project
from flodl_cli.verbs import VERBS
from flodl_wire import environ, exits
from flodl_wire.faults import Refused, usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

# What of the cluster block is judged before a verb's tool sees it; of a verb not named here, all.
_JUDGED = {
    "status": "controller",  # typed all day: running the rest through msgspec costs a whole start
    "start": "controller",
    "why": "nothing",  # a run that failed may have failed because of it
    "runs": "nothing",
    "report": "nothing",
    "probe": "nothing",  # it names every flaw itself, old keys too, where we would stop at the first
}


def hand_over_to_verb(line: CommandLine) -> NoReturn:
    """Become the tool. Raises Refused when it is not installed, or when the project's config is wrong."""
    assert line.command is not None
    verb = VERBS[line.command]
    for option, value in (("--gpus", line.gpus), ("--mode", line.mode), ("--resume", line.resume)):
        if value is not None:
            what = f"cannot use {option} with `fdl {line.command}`"
            raise usage(what, "it chooses how a command of the project runs", "leave it out")
    tool = sibling.require(verb.argv[0], verb.package, f"do `fdl {line.command}`")
    refuse_a_clash(line.command)
    os.environ.pop(environ.CONFIG_JSON, None)
    if line.verbosity is not None:
        os.environ[environ.VERBOSITY] = line.verbosity
    own = line.rest[: line.rest.index("--")] if "--" in line.rest else line.rest
    if "-h" not in own and "--help" not in own:
        try:
            hand_over_config(line)
        except Refused as fault:
            if line.command == "join":
                fault.exit_code = exits.USAGE  # a flaw of this box: whoever dials again for ever must not
            raise
    sibling.hand_over([tool, *verb.argv[1:], *line.rest])


def refuse_a_clash(word: str) -> None:
    """Raises Refused when somebody else's tool has the name of a word of ours: nobody could tell which one ran."""
    others = tools_named(word)
    if others:
        what = f"cannot tell which {word!r} is meant"
        raise Refused("name-clash", what, f"it is fdl's own, and {others[0]} has its name, too", "take that off PATH")


def hand_over_config(line: CommandLine) -> None:
    """Set the variable in which the tool looks for the project's blocks. Raises Refused when one of them is wrong."""
    env = project_files.chosen_env(line.env)
    project = project_files.load(project_files.start_folder(), env)
    if project is None:
        return
    if env is not None:
        os.environ[environ.FDL_ENV] = env
    command = line.command or ""
    made = join_json(project) if command == "join" else config_json(project, _JUDGED.get(command, "all"))
    try:
        os.environ[environ.CONFIG_JSON] = made.encode().hex()
    except UnicodeEncodeError as err:  # a folder whose name is no UTF-8
        from flodl_wire.messages import not_text

        raise not_text(f"cannot hand the project to `fdl {command}`", err) from None


def join_json(project: Project) -> str:
    """What a walk-in needs: its own block. Whatever the cluster block says is other boxes' business."""
    from flodl_cli import join_block

    node = project.config.get("join")
    document = {"manifest": project.manifest, "join": None if node is None else join_block.parse(node)}
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def config_json(project: Project, judged: str) -> str:
    """The blocks that tools read, as JSON. `judged`: how much of the cluster block is validated (all, controller: what
    names it, nothing).
    """
    document: dict[str, object] = {"manifest": project.manifest}
    if project.env is not None:
        document["env_name"] = project.env
    for key in ("cluster", "join", "publish"):
        node = project.config.get(key)
        if node is not None:
            document[key] = node.plain()
    cluster = project.config.get("cluster")
    if cluster is not None and (judged == "all" or (judged == "controller" and not _names_a_controller(cluster))):
        import msgspec

        from flodl_cli import cluster_block

        document["cluster"] = msgspec.to_builtins(cluster_block.parse(cluster))
    return json.dumps(document, ensure_ascii=False, allow_nan=False)


def _names_a_controller(cluster: Node) -> bool:
    """True when host, port and token of the controller are of the right types; else the full check says why."""
    controller = cluster.get("controller")
    host = controller.get("host") if controller is not None else None
    if controller is None or host is None or not isinstance(host.value, str) or not host.value.strip():
        return False
    port = controller.get("port")
    if port is not None and (
        not isinstance(port.value, int) or isinstance(port.value, bool) or not 0 < port.value < 65536
    ):
        return False
    join = controller.get("join")
    token = join.get("token") if join is not None else None
    return token is None or isinstance(token.value, str)
