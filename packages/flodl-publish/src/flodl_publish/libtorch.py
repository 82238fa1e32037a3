"""The libtorch variant a build is made against: where it is, and what a recipe is told of it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flodl_wire.faults import Refused


@dataclass(frozen=True)
class Variant:
    """`<root>/libtorch/<name>/` with `lib/`, `.arch` and, for Python, `site/`."""

    name: str
    folder: Path
    arch: dict[str, str] = field(default_factory=dict)

    @property
    def feature(self) -> str:
        """What FDL_GPU_FEATURE is: cuda, rocm, or "" for the CPU."""
        for key, value in (("rocm", "rocm"), ("hip", "rocm"), ("cuda", "cuda")):
            if self.arch.get(key, "").lower() not in ("", "none", "no"):
                return value
        last = self.name.rpartition("/")[2]
        return "rocm" if last.startswith("rocm") else "cuda" if re.match(r"cu\d|sm\d", last) else ""

    @property
    def site(self) -> Path | None:
        site = self.folder / "site"
        return site if site.is_dir() else None

    @property
    def cuda_archs(self) -> str:
        """As TORCH_CUDA_ARCH_LIST wants them ("6.1;12.0"), "" when not known or not CUDA's."""
        if self.feature != "cuda":
            return ""
        found = re.findall(r"(?:sm_?)?(\d+)\.?(\d)(?=\D|\Z)", self.arch.get("archs", self.arch.get("arch", "")))
        return ";".join(f"{major}.{minor}" for major, minor in found)


def roots(project: Path | None) -> list[Path]:
    return [folder / "libtorch" for folder in (project, Path.home() / ".flodl") if folder is not None]


def named(name: str, project: Path | None) -> Variant:
    """The variant of that name, or in that folder. Raises Refused with the ones that there are."""
    for place in [Path(name).expanduser()] if name.startswith(("/", "~")) else [root / name for root in roots(project)]:
        if place.is_dir():
            return _read(name, place)
    there = sorted({v for root in roots(project) for v in _names(root)})
    raise Refused(
        "no-variant",
        f"cannot build against {name}",
        f"there is no such libtorch variant here; there {'is ' + ', '.join(there) if there else 'are none'}",
        f"fdl libtorch download {name.rpartition('/')[2]}",
    )


def active(project: Path | None) -> Variant | None:
    """The project's `.active`, else the user's; None when neither names one."""
    for root in roots(project):
        pointer = root / ".active"
        try:
            name = pointer.read_text("utf-8", "replace").strip()
        except OSError:
            continue
        if name:
            if not (root / name).is_dir():
                fix = f"fdl libtorch download {name.rpartition('/')[2]}, or fdl libtorch use another"
                raise Refused("no-variant", f"cannot use {pointer}", f"it names {name}, which is not there", fix)
            return _read(name, root / name)
    return None


def environment(variant: Variant | None, state: Path, outer: Mapping[str, str]) -> dict[str, str]:
    """What a recipe finds in its environment besides `outer`. `state`: a folder of this build alone."""
    added = {"FDL_GPU_FEATURE": variant.feature if variant else "", "TORCH_EXTENSIONS_DIR": str(state / "extensions")}
    libraries = [str(place) for place in _rocm(outer)]
    if variant:
        added["LIBTORCH_PATH"] = str(variant.folder)
        libraries.append(str(variant.folder / "lib"))
        if variant.cuda_archs and "TORCH_CUDA_ARCH_LIST" not in outer:
            added["TORCH_CUDA_ARCH_LIST"] = variant.cuda_archs
        if variant.site:
            added["PYTHONPATH"] = os.pathsep.join(filter(None, [str(variant.site), outer.get("PYTHONPATH", "")]))
    libraries += [part for part in outer.get("LD_LIBRARY_PATH", "").split(":") if part]
    if libraries:
        added["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(libraries))
    return added


def _rocm(outer: Mapping[str, str]) -> list[Path]:
    """The system's ROCm runtime goes ahead of the one in the variant: it is the one that fits the driver."""
    places = [outer[name] for name in ("ROCM_PATH", "HIP_PATH", "HSA_PATH") if outer.get(name)] or ["/opt/rocm"]
    return [Path(place, "lib") for place in places if Path(place, "lib").is_dir()][:1]


def _read(name: str, folder: Path) -> Variant:
    arch = {}
    try:
        for line in (folder / ".arch").read_text("utf-8", "replace").splitlines():
            found = re.match(r"\s*([^#=:\s][^=:]*?)\s*[=:]\s*(.*?)\s*\Z", line)
            if found:
                arch[found[1].lower()] = found[2].strip("\"'")
    except OSError:
        pass
    return Variant(name, folder, arch)


def _names(root: Path) -> list[str]:
    return [str(place.parent.relative_to(root)) for place in root.glob("*/*/lib") if place.is_dir()]
