"""The shared data path."""

from __future__ import annotations

from flodl_probe.facts import Facts
from flodl_probe.finding import Finding, error, ok, warning

CHECK = "data"
_LOW = 1 << 30


def check_data(facts: Facts) -> list[Finding]:
    data = facts.data
    if data is None:
        return []
    if data.skipped:
        return [ok(CHECK, "not looked at (--skip-mount)")]
    if data.hangs:
        kind = f"its file system ({data.fs_type}) does not answer" if data.fs_type else "it does not answer"
        return [error(CHECK, f"cannot look into {data.path}", kind, f"umount -l {data.path}, and mount it again")]
    if not data.exists:
        if data.declared:
            fix = "mount it, or mend data_path:"
            return [error(CHECK, f"there is no {data.path}", "data_path names it", fix)]
        fix = "name yours with data_path: (or --data-path); without shared data: --skip-mount"
        return [warning(CHECK, f"there is no {data.path}", "it is where shared data usually lies", fix)]
    if not data.readable:
        fix = f"let this user read it: ls -ld {data.path}"
        return [error(CHECK, f"cannot read {data.path}", "it is no folder that this user may list", fix)]
    if data.empty and data.declared:
        why = "an empty folder is what a mount point looks like when nothing is mounted"
        return [warning(CHECK, f"{data.path} is empty", why, f"mount it: findmnt {data.path}")]
    free = "" if data.free_bytes is None else f", {data.free_bytes / (1 << 30):.1f} GiB free"
    return [ok(CHECK, f"{data.path} ({data.fs_type or 'unknown file system'}{free})")]
