"""What must not stand in the text of any file: hosts of package registries, paths of one machine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tools.rules.finding import Finding, Tree

# Written in pieces, so that this file passes its own rule.
HOSTS = (
    "pypi" + ".org",
    "python" + "hosted.org",
    "download.py" + "torch.org",
    "npm" + "js.org",
    "deb." + "debian.org",
    "crates" + ".io",
    "conda" + ".anaconda.org",
)
REGISTRY = re.compile("|".join(re.escape(host) for host in HOSTS))
MACHINE_PATH = re.compile(r"(?<![\w.~/-])/(?:work|root)/[\w.]")


def no_registry_hosts(tree: Tree) -> Iterator[Finding]:
    for file, number, found in _matches(tree, REGISTRY):
        yield Finding(
            file,
            number,
            f"it names the registry host {found}",
            "where packages come from is the machine's setting: mirrors and closed networks have their own",
            "name the package and leave the place to pip, uv or apt; keep lock files with addresses out",
        )


def no_paths_of_one_machine(tree: Tree) -> Iterator[Finding]:
    for file, number, found in _matches(tree, MACHINE_PATH):
        yield Finding(
            file,
            number,
            f"it holds the machine path {found}…",
            "it exists on one machine only",
            "make it relative to the file, or take it from the environment",
        )


def _matches(tree: Tree, pattern: re.Pattern[str]) -> Iterator[tuple[str, int, str]]:
    for file in tree.files:
        for number, line in enumerate(tree.text(file).splitlines(), 1):
            for match in pattern.finditer(line):
                yield file, number, match.group()
