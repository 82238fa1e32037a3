"""`make docs`: every relative link in a page leads somewhere, and every quoted help text is what the command prints.

A help text stands between `<!-- help: fdl init -->` and `<!-- end help -->`; `python -m tools.pages --write` fills it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.rules.finding import Finding, Tree

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
HELP = re.compile(r"(<!-- help: (?P<command>[^>]+?) -->\n)(?P<body>.*?)(<!-- end help -->)", re.DOTALL)


def anchor(heading: str) -> str:
    """As the forges make it: lower case, punctuation dropped, spaces to dashes."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def broken_links(tree: Tree) -> Iterator[Finding]:
    for page in (name for name in tree.files if name.endswith(".md")):
        text = CODE.sub(lambda match: "\n" * match.group().count("\n"), tree.text(page))
        for match in LINK.finditer(text):
            target, _, fragment = match.group(1).partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            line = text.count("\n", 0, match.start()) + 1
            path = os.path.normpath(Path(page).parent / target) if target else page
            if not (tree.root / path).exists():
                yield Finding(page, line, f"the link to {target} leads nowhere", "there is no such file", "correct it")
            elif fragment and path.endswith(".md"):
                headings = {anchor(found) for found in HEADING.findall((tree.root / path).read_text())}
                if fragment not in headings:
                    yield Finding(
                        page,
                        line,
                        f"the link to #{fragment} leads nowhere",
                        f"{path} has no such heading",
                        "correct it",
                    )


def printed(command: str) -> str:
    """What `COMMAND --help` prints at 100 columns and in an empty folder, from the executables beside this Python."""
    words = command.split()
    program = Path(sys.executable).parent / words[0]
    environment = {**os.environ, "COLUMNS": "100", "NO_COLOR": "1"}
    with tempfile.TemporaryDirectory() as folder:
        command_line: list[str | Path] = [program, *words[1:], "--help"]
        done = subprocess.run(command_line, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    return f"```text\n{done.stdout.rstrip()}\n```\n"


def stale_help(tree: Tree, write: bool = False) -> Iterator[Finding]:
    for page in (name for name in tree.files if name.endswith(".md")):
        text = tree.text(page)
        if "<!-- help: " not in text:
            continue
        fresh = HELP.sub(lambda match: f"{match.group(1)}{printed(match['command'])}{match.group(4)}", text)
        if write:
            (tree.root / page).write_text(fresh)
        elif fresh != text:
            line = next(
                i for i, (a, b) in enumerate(zip(text.split("\n"), fresh.split("\n"), strict=False), 1) if a != b
            )
            yield Finding(
                page, line, "a help text is stale", "the command prints another", "python -m tools.pages --write"
            )


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    tree = Tree(ROOT)
    findings = [*stale_help(tree, write="--write" in arguments), *broken_links(tree)]
    for finding in findings:
        print(finding)
    if not findings:
        print("tools/pages.py: links lead somewhere, help texts are fresh")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
