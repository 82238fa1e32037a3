"""A test that is left out says what it lacks, and none is left out for good. (What may be lacking where CI runs, the
suites' own conftest.py decides.)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.rules.finding import Finding, Tree

LEFT_OUT = ("mark.skip", "mark.xfail", "pytest.xfail")


def skips_say_what_is_missing(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        for node in ast.walk(tree.module(file)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.skip", "pytest.mark.skipif"):
                reason = [word.value for word in node.keywords if word.arg == "reason"]
                if ast.unparse(node.func) == "pytest.skip":
                    reason += node.args[:1]
                if not reason or (isinstance(reason[0], ast.Constant) and not reason[0].value):
                    yield Finding(
                        file,
                        node.lineno,
                        "a test is skipped without a reason",
                        "whoever reads the summary should learn what to install to have it run",
                        "name what is missing, e.g. reason='no sshfs here: apt install sshfs'",
                    )


def no_test_is_left_out_for_good(tree: Tree) -> Iterator[Finding]:
    for file in tree.python:
        for node in ast.walk(tree.module(file)):
            if isinstance(node, ast.Attribute) and ast.unparse(node).endswith(LEFT_OUT):
                yield Finding(
                    file,
                    node.lineno,
                    f"{ast.unparse(node)} leaves a test out, or lets it fail, wherever it runs",
                    "it looks like a test and shows nothing",
                    "mend what it shows, or delete it; where a box may lack something: pytest.mark.skipif",
                )
