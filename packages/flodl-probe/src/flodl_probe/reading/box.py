"""The system: distribution, container, limits."""

from __future__ import annotations

import os
import platform
import resource
from collections.abc import Mapping
from pathlib import Path

from flodl_probe.facts import Box

_MANAGERS = {
    "apt": ("debian", "ubuntu"),
    "dnf": ("fedora", "rhel", "centos", "rocky", "almalinux", "amzn"),
    "pacman": ("arch", "manjaro"),
    "zypper": ("suse", "opensuse", "sles"),
    "apk": ("alpine",),
}


def read(root: Path = Path("/")) -> Box:
    release = os_release(root)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return Box(
        system=platform.system(),
        name=release.get("PRETTY_NAME", platform.system()),
        manager=manager(release, platform.system()),
        container=container(root, os.environ),
        cores=_cores(),
        python=platform.python_version(),
        glibc=_glibc(),
        shm_bytes=_size(root / "dev/shm"),
        files=_limit(soft),
        files_hard=_limit(hard),
        locked_bytes=_limit(locked),
        infiniband=_names(root / "sys/class/infiniband"),
        root=os.geteuid() == 0,
    )


def os_release(root: Path = Path("/")) -> dict[str, str]:
    for place in ("etc/os-release", "usr/lib/os-release"):
        try:
            text = (root / place).read_text("utf-8", "replace")
        except OSError:
            continue
        pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.startswith("#"))
        return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}
    return {}


def manager(release: Mapping[str, str], system: str) -> str:
    """The package manager's command; "" when nobody knows."""
    if system == "Darwin":
        return "brew"
    for name in [release.get("ID", ""), *release.get("ID_LIKE", "").split()]:
        for command, families in _MANAGERS.items():
            if any(name == family or name.startswith(f"{family}-") for family in families):
                return command
    return ""


def container(root: Path, env: Mapping[str, str]) -> str:
    """Which kind of container this is, "" for none. The files are the engines' own marks."""
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    if "KUBERNETES_SERVICE_HOST" in env:
        return "kubernetes"
    return env.get("container", "")


def _cores() -> int | None:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return os.cpu_count()


def _glibc() -> str | None:
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (AttributeError, ValueError, OSError):
        return None
    return version if name == "glibc" and version else None


def _size(path: Path) -> int | None:
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    return found.f_frsize * found.f_blocks


def _limit(value: int) -> int | None:
    return None if value in (resource.RLIM_INFINITY, -1) else value


def _names(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []
