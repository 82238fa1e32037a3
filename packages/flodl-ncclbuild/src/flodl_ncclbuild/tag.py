"""NCCL's versions: as a git tag (v2.27.5-1), as a wheel's (2.27.5, 2.26.2.post1), as its source tree says it."""

from __future__ import annotations

import re
from typing import NamedTuple

from flodl_wire.faults import Refused, usage

_TAG = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-(\d+))?", re.ASCII)
_WHEEL = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.post\d+)?(?:\+\S*)?", re.ASCII)


class Version(NamedTuple):
    major: int
    minor: int
    patch: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


def parse(text: str) -> tuple[Version, str]:
    """What `--tag` says: the version, and the git tag of it. Raises Refused (usage).

    Every release has a revision in NCCL's tags and it is nearly always 1: `v2.27.5` means `v2.27.5-1`.
    """
    match = _TAG.fullmatch(text.strip())
    if match is None:
        raise usage(f"cannot use --tag {text!r}", "it is no release of NCCL", "e.g. --tag v2.27.5")
    version = Version(int(match[1]), int(match[2]), int(match[3]))
    return version, tag_of(version, int(match[4] or 1))


def tag_of(version: Version, revision: int = 1) -> str:
    return f"v{version}-{revision}"


def from_wheel(text: str) -> Version | None:
    """The version of a wheel `nvidia-nccl-cuXX`; a `.post1` was packed anew from the same release."""
    match = _WHEEL.fullmatch(text.strip())
    return Version(int(match[1]), int(match[2]), int(match[3])) if match else None


def from_tree(text: str, where: str) -> tuple[Version, str]:
    """What `makefiles/version.mk` of a source tree says. Raises Refused when that is no version."""
    words = dict(re.findall(r"^\s*(\w+)\s*:?=[ \t]*(\S*)", text, re.MULTILINE))
    numbers = [words.get(f"NCCL_{part}", "") for part in ("MAJOR", "MINOR", "PATCH")]
    if not all(number.isdigit() for number in numbers):
        raise Refused(
            "no-source-tree",
            f"cannot build from {where}",
            "its makefiles/version.mk states no version",
            "name the top folder of an NCCL source tree",
        )
    major, minor, patch = (int(number) for number in numbers)
    revision = words.get("PKG_REVISION", "")
    version = Version(major, minor, patch)
    return version, tag_of(version, int(revision) if revision.isdigit() else 1)
