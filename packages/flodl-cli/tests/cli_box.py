"""A box of its own with recording stand-ins for the sibling tools."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

RECORD = """\
import json, os, sys
out = {"name": os.path.basename(sys.argv[0]), "argv": sys.argv[1:], "cwd": os.getcwd(), "env": dict(os.environ)}
with open(os.environ["RECORD"], "w") as file:
    json.dump(out, file)
sys.exit(int(os.environ.get("EXIT", "0")))
"""


class Box:
    """A bin folder with a Python of its own name, so that nothing of the real installation is found beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.record = folder / "record.json"
        self.bin.mkdir(parents=True)
        self.project = folder / "project"
        self.project.mkdir()
        (self.bin / "python").symlink_to(sys.executable)

    def tool(self, name: str, folder: Path | None = None) -> None:
        path = (folder or self.bin) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable} -S\n{RECORD}")
        path.chmod(0o755)

    def fdl(
        self, *words: str, cwd: Path | None = None, before: str = "", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Type `fdl WORDS`; `before`: lines of Python in front."""
        code = before + "import sys; sys.argv[0] = 'fdl'; from flodl_cli.main import main; sys.exit(main())"
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {
            **os.environ,
            "PYTHONPATH": paths,
            "RECORD": str(self.record),
            "PATH": f"{self.folder}/path:/usr/bin:/bin",
        }
        environment.pop("VIRTUAL_ENV", None)
        return subprocess.run(
            [self.bin / "python", "-c", code, *words],
            cwd=cwd or self.project,
            env={**environment, **env},
            capture_output=True,
            text=True,
            errors="surrogateescape",
            check=False,
        )

    def recorded(self) -> dict[str, object]:
        return json.loads(self.record.read_text())  # type: ignore[no-any-return]
