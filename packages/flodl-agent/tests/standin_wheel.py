"""A torch wheel that is none: a few hundred bytes named as a stand-in, for whatever only needs a wheel of that name."""

from __future__ import annotations

import zipfile
from pathlib import Path

VERSION = "0.0.1+standin"
_INIT = """
from torch import version
__version__ = "{version}"
def set_num_threads(count): pass
class eye:
    def __init__(self, size): self.size = size
    def __matmul__(self, other): return self
    def sum(self): return {total}
"""


def standin(folder: Path, *, total: str = "self.size", cuda: str | None = None, version: str = VERSION) -> Path:
    """The wheel, in `folder`. `total`: what the smoke test's sum comes to."""
    folder.mkdir(parents=True, exist_ok=True)
    name = f"torch-{version}-py3-none-any.whl"
    info = f"torch-{version}.dist-info"
    files = {
        "torch/__init__.py": _INIT.format(version=version, total=total),
        "torch/version.py": f"cuda = {cuda!r}\nhip = None\n",
        "torch/lib/libtorch.so": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: standin\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / name, "w") as wheel:
        for path, text in files.items():
            wheel.writestr(path, text)
    return folder / name
