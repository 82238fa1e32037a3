"""A libtorch variant: one build of torch in a folder of its own, and what a process that uses it finds in its
environment.

    <root>/libtorch/<variant>/    precompiled/cu128, precompiled/cpu, builds/sm61-sm120
        site/                     a torch wheel with all that it needs (first on PYTHONPATH)
        lib -> site/torch/lib     (on LD_LIBRARY_PATH)
        .arch                     name=value lines: torch, python (cp311), cuda or rocm, archs, source
    <root>/libtorch/.active       the variant that holds here; `.active.<host>` goes ahead of it on that host

`<root>` is the project's folder, then ``~/.flodl``. Only folders and text files are read here.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flodl_wire import environ
from flodl_wire.faults import Refused

POINTER = ".active"
METADATA = ".arch"
FAMILIES = ("precompiled", "builds")
_BUILD = re.compile(r"(cpu|cu\d|rocm\d)")


@dataclass(frozen=True)
class Variant:
    """`name` as `.active` has it. `arch`: what `.arch` says, keys in lower case."""

    name: str
    folder: Path
    arch: dict[str, str] = field(default_factory=dict)

    @property
    def feature(self) -> str:
        """What FDL_GPU_FEATURE is: cuda, rocm, or "" for the CPU."""
        for key, value in (("rocm", "rocm"), ("hip", "rocm"), ("cuda", "cuda")):
            if self.arch.get(key, "").lower() not in ("", "none", "no"):
                return value
        return "rocm" if self.label.startswith("rocm") else "cuda" if re.match(r"cu\d|sm\d", self.label) else ""

    @property
    def label(self) -> str:
        """For people and for the door: cu128, cpu, sm61-sm120."""
        return self.name.rstrip("/").rpartition("/")[2]

    @property
    def site(self) -> Path | None:
        site = self.folder / "site"
        return site if site.is_dir() else None

    @property
    def archs(self) -> str:
        """The architectures it was compiled for, as its metadata spells them; "" when it does not say."""
        return self.arch.get("archs", self.arch.get("arch", ""))

    @property
    def cuda_archs(self) -> str:
        """As TORCH_CUDA_ARCH_LIST wants them ("6.1;12.0"), "" when not known or not CUDA's."""
        if self.feature != "cuda":
            return ""
        found = re.findall(r"(?:sm_?)?(\d+)\.?(\d)(?=\D|\Z)", self.archs)
        return ";".join(dict.fromkeys(f"{major}.{minor}" for major, minor in found))

    def check_python(self, version: str = "") -> None:
        """`version`: "3.11.7" (default: of this interpreter). Raises Refused when its wheel is for another Python."""
        major, minor = version.split(".")[:2] if version else sys.version_info[:2]
        tag, own = self.arch.get("python", ""), f"cp{major}{minor}"
        if self.site and tag.startswith("cp") and tag != own:
            raise Refused(
                "other-python",
                f"cannot use the libtorch variant {self.name}",
                f"it is for {tag}, and the Python that would import it is {own}",
                f"fdl libtorch download {self.label} --force, with the Python that runs the training",
            )


def roots(project: Path | None) -> list[Path]:
    return [folder / "libtorch" for folder in (project, Path.home() / ".flodl") if folder is not None]


def named(name: str, project: Path | None) -> Variant:
    """The variant of that name, or in that folder. Raises Refused with the ones that there are."""
    if found := find(name, project):
        return found
    label = name.rpartition("/")[2]
    listed = "fdl libtorch list shows them, download fetches one"
    there = sorted({each.name for root in roots(project) for each in variants(root)})
    raise Refused(
        "no-variant",
        f"cannot use the libtorch variant {name}",
        f"there is no such variant here; there {'is ' + ', '.join(there) if there else 'are none'}",
        f"fdl libtorch download {label}" if _BUILD.match(label) else listed,
    )


def find(name: str, project: Path | None) -> Variant | None:
    """As `named`; a bare "cu128" is precompiled/cu128 too. None when there is none."""
    if name.startswith(("/", "~")):
        places = [(name, Path(name).expanduser())]
    else:
        forms = [name] if "/" in name else [name, *(f"{family}/{name}" for family in FAMILIES)]
        places = [(form, root / form) for root in roots(project) for form in forms]
    return next((read(form, place) for form, place in places if _holds_one(place)), None)


def active(project: Path | None) -> Variant | None:
    """The one that the project's pointer names, else the user's; None when neither does. Raises Refused when it is not
    there.
    """
    for root in roots(project):
        for pointer in pointers(root):
            name = pointed(pointer)
            if not name:
                continue
            if not (root / name).is_dir():
                fix = f"fdl libtorch download {name.rpartition('/')[2]}, or fdl libtorch use another"
                raise Refused("no-variant", f"cannot use {pointer}", f"it names {name}, which is not there", fix)
            return read(name, root / name)
    return None


def chosen(name: str, project: Path | None) -> Variant | None:
    """The variant of that name, the active one for "". Raises Refused."""
    return named(name, project) if name else active(project)


def pointers(root: Path) -> list[Path]:
    """The files that may say which variant holds on this host, the one that wins first."""
    host = os.environ.get(environ.HOST_NAME) or os.uname().nodename
    return [root / f"{POINTER}.{host}", root / POINTER]


def pointed(pointer: Path) -> str:
    """The variant that the file names, "" for none."""
    try:
        return pointer.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def variants(root: Path) -> list[Variant]:
    """Those below one root, by name."""
    folders = sorted(place.parent for place in root.glob("*/*/lib") if place.is_dir())
    return [read(str(folder.relative_to(root)), folder) for folder in folders if folder.parent.name in FAMILIES]


def read(name: str, folder: Path) -> Variant:
    arch = {}
    try:
        for line in (folder / METADATA).read_text("utf-8", "replace").splitlines():
            found = re.match(r"\s*([^#=:\s][^=:]*?)\s*[=:]\s*(.*?)\s*\Z", line)
            if found:
                arch[found[1].lower()] = found[2].strip("\"'")
    except OSError:
        pass
    return Variant(name, folder, arch)


def environment(variant: Variant | None, outer: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH and LD_LIBRARY_PATH of a process that uses `variant`, laid over `outer`: what is there stays, behind.

    The system's ROCm runtime goes ahead of the variant's own copy: it is the one that fits the driver.
    """
    if variant is None:
        return {}
    libraries = [*rocm(outer), str(variant.folder / "lib")]
    added = {"LD_LIBRARY_PATH": _ahead(libraries, outer.get("LD_LIBRARY_PATH", ""))}
    if variant.site:
        added["PYTHONPATH"] = _ahead([str(variant.site)], outer.get("PYTHONPATH", ""))
    return added


def rocm(outer: Mapping[str, str]) -> list[str]:
    """The library folder of the system's ROCm runtime, where there is one."""
    places = [outer[name] for name in ("ROCM_PATH", "HIP_PATH", "HSA_PATH") if outer.get(name)] or ["/opt/rocm"]
    return [str(Path(place, "lib")) for place in places if Path(place, "lib").is_dir()][:1]


def _ahead(first: list[str], rest: str) -> str:
    return ":".join(dict.fromkeys([*first, *(part for part in rest.split(":") if part)]))


def _holds_one(place: Path) -> bool:
    return (place / "lib").is_dir()
