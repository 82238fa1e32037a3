"""`flodl-publish fetch`: pull a published run to this box and prove it whole."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from flodl_publish import run_manifest, source
from flodl_publish.fetching import Fetched, Local, fetch
from flodl_publish.pulling import Login
from flodl_publish.report import size
from flodl_wire import exits, outlets
from flodl_wire.faults import printable, usage

DEFAULT_TO = "~/.flodl/source"


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-publish fetch",
        usage="flodl-publish fetch SOURCE [options] [-- ARGS…]",
        description="Pull a published run to this box and prove it whole. The manifest says what to build and run; "
        "--bin, --cwd, --build and what follows -- hold for a source without one. Exit 0 when DIR/tree is the run, "
        '1 otherwise; with --json, error.family "transient" means that trying again may help.',
    )
    add = made.add_argument
    add("source", metavar="SOURCE", help="rsync://[user@]host[:port]:/tree, file:///abs, git+https://…#ref")
    add("--to", metavar="DIR", default=DEFAULT_TO, help="where its tree/ goes (%(default)s)")
    add("--identity", metavar="KEY", default="", help="the ssh key")
    add("--ssh-option", metavar="K=V", action="append", default=[], help="as ssh's -o takes it; repeatable")
    add("--bin", metavar="FILE", default="", help="what to run, when the source has no manifest")
    add("--cwd", metavar="DIR", default="", help="its folder, when the source has no manifest")
    add("--build", metavar="LINE", default="", help="its recipe, when the source has no manifest")
    add("--quiet", action="store_true", help="no notes on stderr; they are in the document")
    add("--json", action="store_true", help="one document on stdout")
    return made


def main(argv: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    tail: list[str] = []
    if "--" in words:
        mark = words.index("--")
        words, tail = words[:mark], words[mark + 1 :]
    options = parser().parse_args(words)
    for key in ("cwd", "bin"):
        value = getattr(options, key)
        if value and run_manifest.leads_out(f"{options.cwd or '.'}/{value}" if key == "bin" else value):
            raise usage(f"cannot use --{key} {value}", "it leads out of the tree", "name it relative to the tree")
    local = Local(options.bin, options.cwd, options.build, tail)
    login = Login(str(Path(options.identity).expanduser()) if options.identity else "", tuple(options.ssh_option))
    root = Path.cwd() / Path(options.to).expanduser()
    done = fetch(source.parse(options.source), root, local, login, say)
    for note in () if options.quiet else done.notes:
        say(f"note: {note}")
    outlets.work_is_done()
    print(json.dumps(done.as_dict()) if options.json else render(done))
    return exits.DONE


def say(text: str) -> None:
    print(f"flodl-publish: {printable(text)}", file=sys.stderr, flush=True)


def render(done: Fetched) -> str:
    which = f"run {done.run}, proven whole" if done.digest else f"run {done.run}" if done.published else "no manifest"
    return printable(f"{done.tree}: {which}; {done.files} files, {size(done.bytes)}, {done.seconds:.1f} s")
