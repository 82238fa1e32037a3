"""Shared memory, limits, Python."""

from __future__ import annotations

from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning

SHM = "shm"
LIMITS = "limits"
PYTHON = "python"

SHM_LOW = 1 << 29  # Docker's default is 64 MiB; one DataLoader worker with images fills that
FILES_LOW = 1024  # what most systems give; a loader with 16 workers needs a few hundred
LOCKED_LOW = 1 << 30  # RDMA pins its buffers
_OLDEST = (3, 10)


def check_shm(facts: Facts) -> list[Finding]:
    size = facts.box.shm_bytes
    if facts.box.system != "Linux" or facts.asked.role == "controller":
        return []
    if size is None:
        why = "DataLoader workers hand their batches over there"
        return [warning(SHM, "there is no /dev/shm", why, _shm_fix(facts))]
    if size < SHM_LOW:
        what = f"/dev/shm has {size >> 20} MiB"
        return [warning(SHM, what, "DataLoader workers that fill it die with a bus error", _shm_fix(facts))]
    return [ok(SHM, f"/dev/shm has {size / (1 << 30):.1f} GiB")]


def _shm_fix(facts: Facts) -> str:
    if facts.box.container == "kubernetes":
        return "mount an emptyDir with medium: Memory at /dev/shm"
    if facts.box.container:
        return "start the container with --shm-size=8g (compose: shm_size: 8g), or --ipc=host"
    return f"{'' if facts.box.root else 'sudo '}mount -o remount,size=50% /dev/shm"


def check_limits(facts: Facts) -> list[Finding]:
    box, found = facts.box, []
    if box.files is not None and box.files < FILES_LOW:
        high = f" (it may be raised to {box.files_hard})" if box.files_hard else ""
        found.append(
            warning(
                LIMITS,
                f"a process may open {box.files} files{high}",
                "loaders and links run out of them",
                "ulimit -n 65536, or LimitNOFILE=65536 in its systemd unit",
            )
        )
    if box.infiniband and box.locked_bytes is not None and box.locked_bytes < LOCKED_LOW:
        found.append(
            warning(
                LIMITS,
                f"a process may lock {box.locked_bytes >> 20} MiB of memory",
                f"RDMA over {', '.join(box.infiniband)} pins more",
                "ulimit -l unlimited, or LimitMEMLOCK=infinity (containers: --ulimit memlock=-1)",
            )
        )
    return found or [ok(LIMITS, f"{box.files or 'unlimited'} open files")]


def check_python(facts: Facts) -> list[Finding]:
    version = facts.box.python
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    if numbers and numbers < _OLDEST:
        return [error(PYTHON, f"Python {version} is too old", "flodl runs on 3.10 and later", "use a newer Python")]
    return [ok(PYTHON, f"Python {version}")]
