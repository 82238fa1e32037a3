"""Which NCCL the active torch asks for: that is the version to build, for ranks shake hands only within major.minor.

The active torch is the libtorch variant that `.active` names (the project's, else that of ~/.flodl/libtorch), else the
torch of the project's own environment. Nothing is imported: wheels say it in their metadata, and a library that is not
a wheel's is asked itself.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

from flodl_ncclbuild import library, tag
from flodl_wire.faults import Refused

_REQUIREMENT = re.compile(r"^Requires-Dist:\s*nvidia[-_.]nccl[-_.]cu(\d+)\s*\(?==\s*([^\s;)]+)", re.M | re.I)
_CUDA = re.compile(r"^cuda\b[^=\n]*=\s*'([\d.]+)'", re.M)
_HIP = re.compile(r"^hip\b[^=\n]*=\s*'[\d.]", re.M)
FLAG = "name the version, e.g. --tag v2.27.5"


class Asked(NamedTuple):
    version: tag.Version
    origin: str  # where that stands, for people
    cuda: str | None  # what torch was built with: "12.8", or "12" when only the wheel's name tells


def asked(project: Path) -> Asked:
    """Raises Refused, naming each place and why it tells nothing, with the flag that states the version."""
    looked = []
    for where in places(project):
        found = look(where)
        if isinstance(found, Asked):
            return found
        looked.append(f"{where.label} {found}")
        if where.decides:
            break
    raise Refused("no-nccl-version", "cannot tell which NCCL to build", "; ".join(looked), FLAG)


class Place(NamedTuple):
    """A folder of site-packages, and what to call it. One that decides is the active torch whatever it holds."""

    label: str
    site: Path
    libraries: tuple[Path, ...]
    decides: bool = False


def places(project: Path) -> list[Place]:
    """Where torch may be, the first choice first. Raises Refused when `.active` names a variant that is not there."""
    found = []
    for base in (project / "libtorch", Path.home() / ".flodl" / "libtorch"):
        variant = _active(base)
        if variant is not None:
            site = variant / "site"
            found.append(Place(f"the variant {variant}", site, (variant / "lib", *_libraries(site)), decides=True))
            return found
    folders = [folder for folder in (project / ".venv", os.environ.get("VIRTUAL_ENV")) if folder]
    for folder in folders:
        sites = sorted(Path(folder).glob("lib/python3.*/site-packages"))
        found += [Place(f"the environment {folder}", site, _libraries(site)) for site in sites]
    own = Path(sysconfig.get_path("purelib"))
    found.append(Place(f"the environment {sys.prefix}", own, _libraries(own)))
    return [place for i, place in enumerate(found) if place.site not in [earlier.site for earlier in found[:i]]]


def look(place: Place) -> Asked | str:
    """What one place asks for, or why it tells nothing, as the end of a sentence."""
    torch = _metadata(place.site, "torch")
    cuda = None
    if torch is not None:
        words = _read(place.site / "torch" / "version.py")
        found = _CUDA.search(words)
        cuda = ".".join(found[1].split(".")[:2]) if found else None
        requirement = _REQUIREMENT.search(_read(torch / "METADATA"))
        if requirement is not None:
            return _by_wheel(place, torch, requirement, cuda or requirement[1])
        if _HIP.search(words):
            return "holds a torch for AMD cards: they use RCCL, which comes with ROCm"
    for folder in place.libraries:
        path = folder / "libnccl.so.2"
        if path.is_file():
            return Asked(tag.Version(*library.version_of(path)), f"{path} says so itself", cuda)
    if torch is None:
        return "holds no torch"
    return "holds a torch that needs no NCCL" + ("" if cuda else ", built without CUDA")


def _by_wheel(place: Place, torch: Path, requirement: re.Match[str], cuda: str) -> Asked | str:
    """The version required, unless another one is installed: what is installed is what gets loaded."""
    name, wanted = f"nvidia-nccl-cu{requirement[1]}", requirement[2]
    installed = _metadata(place.site, name.replace("-", "_"))
    there = installed.name.removesuffix(".dist-info").rpartition("-")[2] if installed is not None else wanted
    version = tag.from_wheel(there)
    if version is None:
        return f"asks for {name} {there}, which is no version of NCCL"
    torch_version = torch.name.removesuffix(".dist-info").rpartition("-")[2]
    origin = f"torch {torch_version} in {place.label} requires {name}=={wanted}"
    return Asked(version, origin + ("" if there == wanted else f", {there} is installed"), cuda)


def _active(base: Path) -> Path | None:
    """The variant that `.active` in `base` names, None when there is no such file."""
    text = _read(base / ".active").strip()
    if not text:
        return None
    variant = base / text
    if ".." in Path(text).parts or not variant.is_dir():
        fix = f"write one of the folders below {base} into it, or name the version: --tag v2.27.5"
        raise Refused("no-variant", f"cannot use {base / '.active'}", f"there is no variant {text!r}", fix)
    return variant


def _libraries(site: Path) -> tuple[Path, ...]:
    return site / "torch" / "lib", site / "nvidia" / "nccl" / "lib"


def _metadata(site: Path, name: str) -> Path | None:
    """The `.dist-info` of a distribution; the newest name when a clumsy upgrade left two."""
    return max(site.glob(f"{name}-[0-9]*.dist-info"), default=None)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
