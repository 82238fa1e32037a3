"""What to try, by what was seen: a table of traces people leave and the cure for each. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flodl_window.aftermath.causes import Finding

# What a program's last lines (or the cause's own words) hold → what helps. The first that fit, in this order.
_TRACES: tuple[tuple[str, str], ...] = (
    (
        r"CUDA out of memory|OutOfMemoryError|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        "the GPU's memory is full: a smaller batch_size, accumulate= in the Trainer, amp; `gpu_ram_share` when"
        " others use the card, too",
    ),
    (
        r"\bMemoryError|Cannot allocate memory|DefaultCPUAllocator|\(out of memory\)",
        "the box's memory is full: fewer ranks on that host (local_devices), a smaller batch_size, fewer data workers",
    ),
    (
        r"No space left on device|disk quota exceeded",
        "make room on that host's disk (logs, checkpoints, /tmp, /dev/shm); FLODL_RUN_DIR puts runs/ elsewhere",
    ),
    (
        r"ModuleNotFoundError|ImportError|No module named",
        "install the same packages on that host: in the environment of its `path:`, or the one its ranks' PATH finds",
    ),
    (
        r"no kernel image is available|libcu\w+\.so[.\d]*: cannot open|CUDA driver version is insufficient"
        r"|forward compatibility was attempted",
        "torch's build does not fit that host's card or driver: `fdl probe`, then `fdl libtorch download` there",
    ),
    (
        r"CUDA error|device-side assert|illegal memory access|HIP error|Xid",
        "run once with CUDA_LAUNCH_BLOCKING=1 in `env:` to get the true line; an index out of range is the usual one",
    ),
    (
        r"ncclRemoteError|ncclSystemError|ncclInternalError|NCCL error|ProcessGroupNCCL",
        "`fdl @<environment> probe` compares NCCL, interfaces and cards; NCCL_DEBUG=INFO in `env:` shows its choice",
    ),
    (
        r"Permission denied \(|Host key verification failed|Could not resolve hostname|kex_exchange|Too many auth",
        "mend the login first: the ssh command above must get in by itself, without a question",
    ),
    (r"Address already in use", "another program holds that port: see who (`ss -ltnp`), or choose another one"),
    (r"FileNotFoundError|No such file or directory", "what is named there must be on every host: the data, the script"),
    (r"PermissionError|Permission denied(?! \()", "the user of the ranks may not read or write what is named there"),
    (r"\bnan\b|not finite|\binf\b.*loss", "the numbers ran away: a lower learning rate, clip= in the Trainer"),
    (
        r"size mismatch|Missing key\(s\) in state_dict",
        "the checkpoint is of another model: go back to its code",
    ),
)

_SIGNALS: dict[str, str] = {
    "SIGKILL": "`dmesg -T | grep -i -E 'killed process|out of memory'` on {host} tells whether the kernel did it; fewer"
    " ranks there or a smaller batch_size if so",
    "SIGBUS": "`df -h /dev/shm` on {host}: in a container raise it (`shm_size:`), or use fewer data workers",
    "SIGSEGV": "PYTHONFAULTHANDLER=1 in `env:` shows the Python line; then suspect the newest extension or driver",
    "SIGILL": "reinstall what was built for another processor (`lscpu` on {host})",
    "SIGABRT": "its last lines hold the assertion; NCCL's watchdog says which collective waited",
    "SIGTERM": "ask whatever manages {host} (a scheduler, systemd, a colleague) why it ended it",
    "SIGHUP": "the session it hung on has ended: the ssh to {host}, or its terminal",
}

_ROADS = (
    (r"did not form|could not join", "`fdl @<environment> probe` goes to every host and says what is missing"),
    (
        r"no sign of life",
        "see whether {host} still answers (`ssh {host} uptime`): asleep, swapping, or its network is cut",
    ),
    (r"link closed without a goodbye|its agent ended", "see what ended the agent on {host}: `journalctl -n 50` there"),
    (r"coordinator lost", "the coordinator runs on the controller's own box: see its memory and disk"),
    (r"relay on", "the relay's log is log/{host}-relay.log; `df -h /dev/shm` and the memory of {host}"),
    (r"keeper .*stands still", "somebody stopped the keeper on {host} (kill -STOP, a debugger), or the box swaps"),
    (
        r"keeper",
        "somebody ended the keeper on {host}, and all its ranks with it: a cleaner of processes, the kernel",
    ),
    (r"fan-out lost", "the fan-out runs on the controller's own box: somebody or the kernel ended it"),
    (r"interrupted", ""),
)

MOST = 4


def what_to_try(first: Finding, lines: Sequence[str]) -> list[str]:
    """At most MOST lines, the most fitting first. `lines`: the culprit's last ones."""
    tips: list[str] = []
    if first.fix:
        tips.append(first.fix)
    host = first.host or "the controller's box"
    text = "\n".join([*lines, first.what, first.why])
    tips += [cure for trace, cure in _TRACES if re.search(trace, text)][:2]
    tips += [cure.format(host=host) for name, cure in _SIGNALS.items() if re.search(rf"\b{name}\b", first.meaning)]
    said = f"{first.what} {first.why}"
    tips += [cure.format(host=host) for trace, cure in _ROADS if cure and re.search(trace, said)][:1]
    if not tips and first.rank is not None and lines:
        tips.append("read its last lines: the program ended by itself")
    return list(dict.fromkeys(tips))[:MOST]
