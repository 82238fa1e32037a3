"""`flodl-publish build`: build a fetched run against the torch that this box holds."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from flodl_publish import building, proof, recipe, run_manifest, settings
from flodl_publish.building import Work
from flodl_publish.cli_fetch import DEFAULT_TO, say
from flodl_publish.index import INDEX, Index
from flodl_publish.place import Place
from flodl_publish.run_manifest import RunManifest
from flodl_wire import exits, libtorch, outlets
from flodl_wire.faults import Refused, Transient, printable


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="flodl-publish build",
        description="Build what `flodl-publish fetch` brought, by the recipe of its manifest, against a libtorch "
        "variant or the environment's own torch. The tree is proven whole first. Output goes to stderr as it comes.",
    )
    add = made.add_argument
    add("place", nargs="?", metavar="DIR", default=DEFAULT_TO, help="the folder that fetch filled (%(default)s)")
    add("--libtorch", metavar="VARIANT", help="its name or its folder (the active one)")
    add("--bin", metavar="FILE", default="", help="what must be there afterwards, when there is no manifest")
    add("--cwd", metavar="DIR", default="", help="its folder, when there is no manifest")
    add("--build", metavar="LINE", default="", help="the recipe, when there is no manifest")
    add("--config", metavar="FILE", help="the config as JSON (fdl config show --json); - for stdin")
    add("--quiet", action="store_true", help="show nothing of it on stderr unless it fails")
    add("--json", action="store_true", help="one document on stdout")
    return made


def main(argv: list[str] | None = None) -> int:
    options = parser().parse_args(argv)
    place = Place(Path.cwd() / Path(options.place).expanduser())
    project = settings.handed(options.config).project
    manifest = _manifest(place, options)
    variant = libtorch.chosen(options.libtorch or "", project)
    tell = (lambda text: None) if options.quiet else say
    if manifest.run and not manifest.built:
        tell("note: nobody has built this run before: it was published with --no-build")
    work = Work(place.tree, manifest.cwd, manifest.build, manifest.bin, place.state)
    built = building.build(work, variant, tell, show=not options.quiet)
    if manifest.toolchain and built.toolchain and manifest.toolchain != built.toolchain:
        built.warnings.append(f"the controller has {manifest.toolchain}, this box {built.toolchain}")
    for warning in built.warnings:
        tell(f"warning: {warning}")
    outlets.work_is_done()
    program = str(work.project / work.bin)
    if options.json:
        python = str(recipe.interpreter(work.project)) if work.bin.endswith(".py") else ""
        document = {
            "bin": program,
            "cwd": str(work.project),
            "args": manifest.args,
            "run": manifest.run,
            "python": python,
        }
        print(json.dumps({**document, **asdict(built)}))
    else:
        print(printable(f"{program}: {built.recipe}, {built.seconds:.1f} s"))
    return exits.DONE


def _manifest(place: Place, options: argparse.Namespace) -> RunManifest:
    """That of the tree, proven; without one, what the flags say."""
    if place.unfinished.exists():
        raise Transient("unfinished", f"cannot build in {place.root}", "its last fetch did not succeed", "fetch again")
    if not place.manifest.exists():
        if not options.bin:
            raise Transient(
                "no-manifest", f"cannot build in {place.root}", "it holds no published run", "fetch one first"
            )
        for value in (options.cwd, f"{options.cwd or '.'}/{options.bin}"):
            if value and run_manifest.leads_out(value):
                raise Refused("usage", f"cannot use {value}", "it leads out of the tree", exit_code=exits.USAGE)
        return RunManifest(options.bin, "", 0, options.cwd, options.build)
    manifest = run_manifest.read(place.manifest)
    if manifest.digest is not None:
        index = Index.load(place.state / INDEX)
        proof.prove(place.tree, proof.listing(place.tree, manifest.digest), index)
    return manifest
