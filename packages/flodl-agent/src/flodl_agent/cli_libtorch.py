"""``flodl-agent libtorch`` (`fdl libtorch`): fetch a build of torch, list those here, choose the active one."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from flodl_wire import exits, libtorch, outlets
from flodl_wire.faults import Refused, printable, usage
from flodl_wire.libtorch import Variant


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="fdl libtorch",
        description="Builds of torch in folders of their own, so that one box can hold several. The active one holds "
        "for every `fdl` command, join and gate. They stand in libtorch/ of the project, or in ~/.flodl/libtorch where "
        "there is none (--user: also where there is one).",
        epilog="Exit: 0 done, 1 not done, 2 usage, 130 interrupted (what was there before is left as it was).",
        allow_abbrev=False,
    )
    verbs = made.add_subparsers(dest="verb", required=True, metavar="download | list | use")
    get = verbs.add_parser("download", help="fetch a build, try it, make it the active one", allow_abbrev=False)
    get.add_argument("variant", nargs="?", metavar="VARIANT", help="cpu, cu126, cu128, cu130, rocm6.4 …; auto: by GPU")
    get.add_argument("--cpu", action="store_true", help="the same as cpu")
    get.add_argument("--torch", metavar="VERSION", default="", help="of torch (that of this environment, else newest)")
    get.add_argument(
        "--index", metavar="URL", default="", help="package index ($FLODL_TORCH_INDEX/VARIANT, else pip's own)"
    )
    get.add_argument("--find-links", metavar="DIR", default="", help="look there too, with pip's configured indexes")
    get.add_argument("--no-activate", action="store_true", help="leave the active one as it is")
    get.add_argument("--force", action="store_true", help="fetch it again when it is here")
    shown = verbs.add_parser("list", help="the variants that are here", allow_abbrev=False)
    use = verbs.add_parser("use", help="make another one the active one", allow_abbrev=False)
    use.add_argument("variant", metavar="VARIANT", help="its name: precompiled/cu128, cu128")
    for each in (get, use):
        each.add_argument("--case", metavar="HOST", default="", help="on that host alone (.active.HOST)")
    for each in (get, shown, use):
        each.add_argument("--user", action="store_true", help="in ~/.flodl/libtorch, also inside a project")
        each.add_argument("--json", action="store_true", help="one document on stdout")
    return made


def main(argv: list[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    options = parser().parse_args(words)
    project = None if options.user else _project()
    if options.verb == "download":
        document = _download(options, project)
    elif options.verb == "use":
        document = _use(options, project)
    else:
        document = _list(project)
    if options.verb != "list":
        outlets.work_is_done()
    print(json.dumps(document) if options.json else _text(options.verb, document))
    return exits.DONE


def _project() -> Path | None:
    """The folder of the fdl.yml that `fdl` found; None without one."""
    from flodl_agent.cli_join import config

    manifest = config(None).get("manifest")
    return Path(manifest).parent if isinstance(manifest, str) else None


def _download(options: argparse.Namespace, project: Path | None) -> dict[str, Any]:
    from flodl_agent import torch_build, torch_choice, torch_download
    from flodl_agent.offer import offers_of, probe

    name = options.variant or ("cpu" if options.cpu else "")
    if not name or (options.cpu and options.variant):
        raise usage("cannot tell which build to download", "name one", "fdl libtorch download auto, --cpu, or cu128")
    if options.case:
        _check_case(options.case)
    build = torch_choice.auto(offers_of(probe())) if name == torch_build.AUTO else torch_build.parse(name)
    root = libtorch.roots(project)[0]
    there = libtorch.find(build.variant, project) is not None
    where = torch_download.Where(options.index, _absolute(options.find_links), options.torch)
    variant = torch_download.download(build, root, where, _say, force=options.force)
    if not options.no_activate:
        torch_download.activate(root, variant.name, options.case)
    return {**_row(variant, root, project), "fetched": options.force or not there}


def _use(options: argparse.Namespace, project: Path | None) -> dict[str, Any]:
    from flodl_agent import torch_download

    if options.case:
        _check_case(options.case)
    variant = libtorch.named(options.variant, project)
    root = next((root for root in libtorch.roots(project) if (root / variant.name) == variant.folder), None)
    if root is None or variant.name.startswith(("/", "~")):
        what = f"cannot make {options.variant} the active one"
        raise usage(what, "a pointer names a variant below its own root", "name it as `fdl libtorch list` does")
    torch_download.activate(root, variant.name, options.case)
    row = _row(variant, root, project)
    holds = libtorch.active(project)
    if not options.case and holds is not None and holds.folder != variant.folder:
        _say(f"note: {holds.folder} still goes ahead of it here (the project's pointer, or that of this host)")
    return row


def _list(project: Path | None) -> dict[str, Any]:
    roots = [root for root in libtorch.roots(project) if root.is_dir()]
    rows = [_row(variant, root, project) for root in roots for variant in libtorch.variants(root)]
    return {"variants": rows, "roots": [str(root) for root in libtorch.roots(project)]}


def _row(variant: Variant, root: Path, project: Path | None) -> dict[str, Any]:
    try:
        holds = libtorch.active(project)
    except Refused:
        holds = None
    return {
        "name": variant.name,
        "path": str(variant.folder),
        "active": holds is not None and holds.folder == variant.folder,
        "torch": variant.arch.get("torch", ""),
        "python": variant.arch.get("python", ""),
        "feature": variant.feature,
        "archs": variant.archs,
        "root": str(root),
    }


def _text(verb: str, document: dict[str, Any]) -> str:
    if verb != "list":
        holds = "the active one" if document["active"] else "not the active one here"
        return printable(f"{document['name']}: torch {document['torch'] or '?'}, {holds}")
    if not document["variants"]:
        return printable(f"no libtorch variant in {' or '.join(document['roots'])}; fdl libtorch download auto")
    rows = document["variants"]
    width = max(len(row["name"]) for row in rows)
    lines = []
    for row in rows:
        said = ", ".join(
            part for part in (row["torch"] and f"torch {row['torch']}", row["python"], row["archs"]) if part
        )
        lines.append(f"{'*' if row['active'] else ' '} {row['name']:<{width}}  {said or 'no .arch'}  {row['root']}")
    return printable("\n".join(lines))


def _check_case(case: str) -> None:
    from flodl_wire import hosts

    if flaw := hosts.flaw(case):
        raise usage(f"cannot use --case {case!r}", flaw, "name a host")


def _absolute(folder: str) -> str:
    """A folder of wheels from the shell's own; an address is left alone."""
    return folder if not folder or "://" in folder else str(Path(folder).expanduser().absolute())


def _say(text: str) -> None:
    print(f"fdl libtorch: {printable(text)}", file=sys.stderr, flush=True)
