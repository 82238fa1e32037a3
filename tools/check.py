"""The rules of the house that no linter knows: `python -m tools.check [ROOT]`.

Prints each breach as `file:line: what: why` with its fix; exit 1 when there is one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # called as a file instead of as a module
    sys.path.insert(0, str(ROOT))

from tools.rules import circles, imports, names, shape, skips, waiting, words  # noqa: E402
from tools.rules.finding import Finding, Tree  # noqa: E402

RULES: list[Callable[[Tree], Iterable[Finding]]] = [
    imports.no_arrow_between_siblings,
    imports.torch_only_in_ranks,
    circles.no_circles,
    names.internal_names_in_one_file,
    names.no_vague_modules,
    shape.no_long_files,
    shape.a_readme_in_every_room,
    shape.the_front_page_names_the_two_commands,
    words.no_registry_hosts,
    words.no_paths_of_one_machine,
    waiting.no_sleep_in_tests,
    skips.skips_say_what_is_missing,
    skips.no_test_is_left_out_for_good,
]


def check(root: Path) -> list[Finding]:
    tree = Tree(root)
    return [finding for rule in RULES for finding in rule(tree)]


def main(argv: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    findings = check(Path(arguments[0]) if arguments else ROOT)
    for finding in findings:
        print(finding)
    if findings:
        print(f"\n{len(findings)} breach(es) of the rules in tools/rules/")
        return 1
    print(f"tools/check.py: {len(RULES)} rules hold")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
