"""What a program imports, by its text."""

from __future__ import annotations

from pathlib import Path

from publish_worlds import write

from flodl_publish import imports


def reached(root: Path, cwd: str, program: str) -> set[str]:
    return set(imports.closure(root, program, imports.roots(cwd, program)))


def test_modules_packages_and_relative_imports_are_followed(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "p/train.py": "import os, numpy\nfrom model import net\nimport plain\ndef f():\n    import late\n",
            "p/model/__init__.py": "from . import net\n",
            "p/model/net.py": "from .layers import dense\nfrom .. import nothing\n",
            "p/model/layers/dense.py": "",
            "p/plain.py": "import train\n",
            "p/late.py": "",
            "p/unused.py": "",
            "p/src/lib.py": "",
        },
    )
    got = reached(tmp_path, "p", "p/train.py")
    assert got == {
        f"p/{n}"
        for n in ("train.py", "model/__init__.py", "model/net.py", "model/layers/dense.py", "plain.py", "late.py")
    }


def test_the_programs_own_folder_the_project_and_its_src_are_searched(tmp_path: Path) -> None:
    write(tmp_path, {"p/bin/t.py": "import a, b, c", "p/bin/a.py": "", "p/b.py": "", "p/src/c.py": ""})
    assert reached(tmp_path, "p", "p/bin/t.py") == {"p/bin/t.py", "p/bin/a.py", "p/b.py", "p/src/c.py"}


def test_a_file_that_does_not_parse_ends_its_branch(tmp_path: Path) -> None:
    write(tmp_path, {"t.py": "import a", "a.py": "import b\n(", "b.py": ""})
    assert reached(tmp_path, "", "t.py") == {"t.py", "a.py"}
