"""A build of torch made a libtorch variant: fetched by pip beside its place, tried, described, then moved in whole.

Whatever ends this early (Ctrl-C, a full disk, kill -9) leaves the variant that was there, or none; what a killed one
left beside it goes with the next download.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from flodl_agent import descent, torch_build, torch_pip
from flodl_agent.torch_build import Build
from flodl_wire import environ, libtorch
from flodl_wire.faults import Broken, Fault, Refused, Transient
from flodl_wire.libtorch import Variant

Say = Callable[[str], None]

# The smoke test: it loads, it computes, and says what it is. One thread: a box may be busy.
_TRY = """
import json, torch
torch.set_num_threads(1)
left = torch.eye(8)
assert float((left @ left).sum()) == 8.0
flags = getattr(getattr(torch, "_C", None), "_cuda_getArchFlags", None)
version = torch.version
print("flodl-torch: " + json.dumps({
    "torch": torch.__version__, "cuda": getattr(version, "cuda", None), "hip": getattr(version, "hip", None),
    "archs": (flags() or "") if flags else "", "file": torch.__file__,
}))
"""
_TRIED = "flodl-torch: "
ELSEWHERE = (
    f"name PyTorch's index of that build, --index URL (or all of them, {environ.TORCH_INDEX}), or --find-links DIR"
)
_TRY_SECONDS = 300.0  # from a cold disk


@dataclass(frozen=True)
class Where:
    """Where to look for wheels: `index` "" for what FLODL_TORCH_INDEX says, and pip's own configuration behind it.
    `torch`: a version, "" for the one that is installed beside us, else the newest.
    """

    index: str = ""
    find_links: str = ""
    torch: str = ""


def download(build: Build, root: Path, where: Where, say: Say, *, force: bool = False) -> Variant:
    """The variant below `root`, as it is there or fetched. Raises Fault."""
    folder = root / build.variant
    with _alone(root, say):
        if not force and (folder / "lib").is_dir():
            return libtorch.read(build.variant, folder)
        what = f"cannot download torch for {build.label}"
        words, found = _choose(build, where, what, say)
        if found.version:
            origin = found.url.rpartition("/")[0]
            say(f"torch {found.version} from {origin}, with {len(found.rest)} more packages")
        scratch = folder.with_name(f".{build.label}.{os.getpid()}.part")
        began = time.monotonic()
        try:
            scratch.mkdir(parents=True)
            torch_pip.install(words, scratch / "site", what)
            _describe(build, scratch, found, what)
            _move_in(scratch, folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    say(f"{build.variant} is at {folder} ({time.monotonic() - began:.0f} s)")
    return libtorch.read(build.variant, folder)


def _choose(build: Build, where: Where, what: str, say: Say) -> tuple[list[str], torch_pip.Found]:
    """The words for pip and the torch that they lead to, which is known to be of another build before it is fetched."""
    version = where.torch or _installed()
    general = "" if where.index or where.find_links else build.index(os.environ.get(environ.TORCH_INDEX, ""))
    words = torch_build.pip_words(version, where.index or general, where.find_links)
    try:
        found = torch_pip.resolve(words, what)
    except (Transient, Refused) as fault:
        if not general or fault.code not in ("no-index", "no-wheel"):
            raise
        say(f"note: {general} does not give it ({fault.why}); asking what pip is configured for")
        words = torch_build.pip_words(version, None, None)
        found = torch_pip.resolve(words, what)
    if found.label and not build.is_(found.label):
        raise Refused("other-build", what, f"pip gives torch {found.version}, the build for {found.label}", ELSEWHERE)
    return words, found


def _installed() -> str:
    """The public version of the torch beside us, so that all boxes of one release get the same; "" without one."""
    try:
        return metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        return ""


def _describe(build: Build, scratch: Path, found: torch_pip.Found, what: str) -> None:
    """`lib`, the smoke test, `.arch`. Raises Broken when it does not work here, Refused when it is another build."""
    if not (scratch / "site/torch").is_dir():
        raise Broken("no-torch", what, "pip installed it and there is no torch in it")
    (scratch / "site/torch/lib").mkdir(exist_ok=True)
    (scratch / "lib").symlink_to("site/torch/lib")
    said = _try(Variant(build.variant, scratch), what)
    is_one = torch_build.label_of(said["cuda"], said["hip"])
    if not build.is_(is_one):
        raise Refused("other-build", what, f"what pip gave is torch for {is_one}", ELSEWHERE)
    rows = {
        "torch": said["torch"],
        "python": "cp{}{}".format(*sys.version_info[:2]),
        "cuda": said["cuda"] or "none",
        "rocm": said["hip"] or "none",
        "archs": said["archs"] or "",
        "source": found.url,
    }
    (scratch / libtorch.METADATA).write_text("".join(f"{name}={value}\n" for name, value in rows.items() if value))


def _try(variant: Variant, what: str) -> dict[str, str | None]:
    environment = {**os.environ, **libtorch.environment(variant, os.environ), "PYTHONDONTWRITEBYTECODE": "1"}
    us = os.getpid()
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            preexec_fn=lambda: descent.die_with(us),
            timeout=_TRY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Broken("smoke-test", what, "it was fetched, and `import torch` did not end") from None
    line = next((line for line in done.stdout.splitlines() if line.startswith(_TRIED)), None)
    if done.returncode or line is None:
        last = [line for line in done.stderr.splitlines() if line.strip()]
        why = f"it was fetched, and it does not work here: {last[-1].strip() if last else f'exit {done.returncode}'}"
        raise Broken("smoke-test", what, why, "another build or --torch VERSION; flodl-probe says what this box has")
    told: dict[str, str | None] = json.loads(line.removeprefix(_TRIED))
    if not str(told["file"]).startswith(str(variant.folder)):
        raise Broken("smoke-test", what, f"`import torch` took {told['file']} instead")
    return told


def _move_in(scratch: Path, folder: Path) -> None:
    """In one step for a reader; one that was there is moved aside first and goes behind."""
    old = folder.with_name(f".{folder.name}.{os.getpid()}.old")
    if folder.exists() or folder.is_symlink():
        folder.rename(old)
    try:
        scratch.rename(folder)
    except BaseException:
        if old.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _alone(root: Path, say: Say) -> Iterator[None]:
    """One download at a time below `root`; what a killed one left is swept. The lock goes with its holder."""
    try:
        (root / "precompiled").mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as err:
        raise _system(root, err) from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another download into {root}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        for left in (root / "precompiled").glob(".*.part"):
            shutil.rmtree(left, ignore_errors=True)
        for left in (root / "precompiled").glob(".*.old"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    except OSError as err:
        raise _system(root, err) from None
    finally:
        os.close(descriptor)


def _system(root: Path, err: OSError) -> Fault:
    import errno

    what = f"cannot keep a libtorch variant in {root}"
    if err.errno in (errno.ENOSPC, errno.EDQUOT):
        return Broken("no-space", what, "there is no space left", "make room: torch wants 0.7 to 8 GB")
    if err.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Refused("unwritable", what, err.strerror or str(err), "make it writable for this user")
    return Broken("system", what, str(err))


def activate(root: Path, name: str, case: str = "") -> Path:
    """Let `.active` (of one host: `.active.<case>`) name the variant, in one step; the pointer."""
    pointer = root / (f"{libtorch.POINTER}.{case}" if case else libtorch.POINTER)
    scratch = pointer.with_name(f"{pointer.name}.{os.getpid()}.part")
    try:
        scratch.write_text(f"{name}\n")
        scratch.replace(pointer)
    except OSError as err:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise _system(root, err) from None
    return pointer
