"""The length of files, and a README in every room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath

from tools.rules.finding import Finding, Tree

LONGEST = 450  # lines; the style guide's median is 80-170, and a file past this is the one newcomers fear
MUST_NAME = ("make demo", "make test")


def no_long_files(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        count = len(tree.text(file).splitlines())
        if count > LONGEST:
            yield Finding(
                file,
                LONGEST + 1,
                f"the file has {count} lines",
                "nobody reads such a file to its end",
                "split it by concept, one noun a file",
            )


def a_readme_in_every_room(tree: Tree) -> Iterator[Finding]:
    files = set(tree.files)
    rooms = {parent for file in files for parent in PurePosixPath(file).parents}
    for room in sorted(rooms):
        if not _needs_readme(room):
            continue
        readme = str(room / "README.md")
        if readme not in files:
            yield Finding(
                readme,
                1,
                "the room has no README.md",
                "whoever opens the folder should learn what it is for",
                "add one; its first line says it",
            )
            continue
        first = (tree.text(readme).splitlines() or [""])[0].strip()
        # the front page may open with its title
        if room.parts and (not first or first.startswith("#")):
            yield Finding(
                readme,
                1,
                "its first line does not say what the room is for",
                "listings and `fdl help` show that line",
                "open with one sentence, put the heading behind it",
            )


def _needs_readme(room: PurePosixPath) -> bool:
    """A package's README speaks for its src and its tests; a tool's for its tests."""
    parts = room.parts
    if not parts:
        return True
    if any(part.startswith(".") for part in parts) or parts == ("packages",):
        return False
    if parts[-1] in ("src", "tests"):
        return False
    return not (len(parts) >= 2 and parts[-2] == "src")


def the_front_page_names_the_two_commands(tree: Tree) -> Iterator[Finding]:
    if "README.md" not in tree.files:
        return
    for command in MUST_NAME:
        if command not in tree.text("README.md"):
            yield Finding(
                "README.md",
                1,
                f"it does not show `{command}`",
                "by it a newcomer finds out whether this works",
                f"show `{command}`",
            )
