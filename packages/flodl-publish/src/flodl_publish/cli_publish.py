"""`flodl-publish publish`: put a run where a fleet can pull it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flodl_publish import settings
from flodl_publish.place import Place
from flodl_publish.settings import Handed, Settings
from flodl_publish.standing import Glance
from flodl_wire import exits, outlets
from flodl_wire.faults import printable
from flodl_wire.served_runs import DEFAULT_SERVED


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-publish publish",
        usage="flodl-publish publish [SOURCE] [options] [-- ARGS…]",
        description="Copy a source into the served folder, build it once as a gate, and write the manifest that tells "
        "workers that a run is there. Flags win over the publish: block of fdl.yml, field by field; what follows -- "
        "replaces its args, also when it is nothing. Exit 0 when the run is published, 1 otherwise.",
    )
    add = made.add_argument
    add("source", nargs="?", metavar="SOURCE", help="file:///abs, rsync://[user@]host[:port]:/abs, git+https://…#ref")
    add("--bin", metavar="FILE", help="what workers run, relative to the project's folder; *.py runs with its Python")
    add("--cwd", metavar="DIR", help="the project's folder in the source (its root)")
    add("--build", metavar="LINE", help="a shell line that builds it (what the files imply: uv sync, cargo build, …)")
    add("--to", metavar="DIR", help=f"the served folder ({DEFAULT_SERVED})")
    add("--identity", metavar="KEY", help="the ssh key for a source that is pulled")
    add("--gate", metavar="VARIANT", action="append", default=[], help="build against this libtorch, too; repeatable")
    add("--no-build", action="store_true", help="skip the gate; the manifest says so")
    add("--dry-run", action="store_true", help="show what would travel and touch nothing that is served")
    add("--wait", action="store_true", help="wait for another publish into that folder instead of failing")
    add("--host", metavar="NAME", help="how workers name this box (the controller's host, else its own name)")
    add("--config", metavar="FILE", help="the config as JSON (fdl config show --json); - for stdin")
    add("--json", action="store_true", help="the report as one document on stdout, notes on stderr")
    return made


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    tail = None
    if "--" in words:
        mark = words.index("--")
        words, tail = words[:mark], words[mark + 1 :]
    options = parser().parse_args(words)
    given = settings.handed(options.config)
    flags = {key: getattr(options, key) for key in settings.KEYS if key != "args"}
    settled = settings.settle(given, flags, tail)
    glance = None
    if settled.source.kind == "file" and not (options.gate or options.dry_run):
        glance = Glance(Path(settled.source.path), Place(settled.to))  # it looks while we load the rest
    try:
        return _publish(options, given, settled, glance)
    finally:
        if glance is not None:
            glance.end()


def _publish(options: argparse.Namespace, given: Handed, settled: Settings, glance: Glance | None) -> int:
    from flodl_publish import report
    from flodl_publish.publishing import Wish, publish

    wish = Wish(
        settings=settled,
        gates=options.gate,
        project=given.project,
        host=options.host or given.controller,
        no_build=options.no_build,
        dry_run=options.dry_run,
        wait=options.wait,
    )
    done = publish(wish, lambda text: print(f"flodl-publish: {printable(text)}", file=sys.stderr, flush=True), glance)
    if not options.dry_run:
        outlets.work_is_done()
    print(json.dumps(done.as_dict()) if options.json else report.render(done))
    return exits.DONE
