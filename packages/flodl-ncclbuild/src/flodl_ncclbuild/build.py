"""Running a plan: one step after the other into a folder beside the output, which appears whole or not at all."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from flodl_ncclbuild import child, library
from flodl_ncclbuild.plan import Docker, Plan, Step
from flodl_ncclbuild.tag import Version
from flodl_wire.faults import Broken, Fault, Refused, Transient, printable

TAIL = 15  # lines of the log shown when a step failed


def run(plan: Plan) -> Path:
    """Build, and put the library at `plan.output`; its log stays at `plan.log`, whatever comes. Returns the path.

    KeyboardInterrupt ends what runs, and everything below it, before it goes on. Raises Refused, Transient, Broken.
    """
    builds = plan.work.parent
    builds.mkdir(parents=True, exist_ok=True)
    with _log_of(plan) as log:
        _clear(plan.work)
        if plan.work.exists():
            fix = f"sudo rm -r {plan.work}"
            raise Refused("leftovers", f"cannot remove {plan.work}", "some of it belongs to another user", fix)
        try:
            _require_space(plan)
            for folder in ("build", "tmp"):
                (plan.work / folder).mkdir(parents=True)
            for step in plan.steps:
                _do(step, plan, log)
            return _place(_result(plan), plan)
        finally:
            _clear(plan.work)


@contextmanager
def _log_of(plan: Plan) -> Iterator[IO[bytes]]:
    """The log, locked: two builds of the same library would work in one folder. Children hold the lock too, so that a
    build whose tool was killed still keeps the next one off while its compiler runs."""
    with plan.log.open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            why = f"another build of it is running, with its log at {plan.log}"
            raise Refused("already-building", f"cannot build {plan.output}", why, "wait for it, or end it") from None
        log.truncate(0)
        yield log


def _clear(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _require_space(plan: Plan) -> None:
    free = shutil.disk_usage(plan.work.parent).free
    if free < plan.disk_needed:
        raise Refused(
            "no-space",
            f"cannot build in {plan.work.parent}",
            f"{free / 1e9:.1f} GB are free, and it takes about {plan.disk_needed / 1e9:.1f}",
            "make room there, or build for fewer cards (--archs)",
        )


def _do(step: Step, plan: Plan, log: IO[bytes]) -> None:
    print(f"{step.doing} …", file=sys.stderr, flush=True)
    log.write(f"$ {' '.join(step.argv)}\n".encode("utf-8", "surrogateescape"))
    log.flush()
    began = time.monotonic()

    def tell(seconds: float) -> None:
        print(f"{step.doing}: {seconds / 60:.0f} min, log at {plan.log}", file=sys.stderr, flush=True)

    try:
        code = child.run(step.argv, log, _environment(plan), tell)
    except KeyboardInterrupt:
        if isinstance(plan.road, Docker):
            child.end_container(plan.road.container)
        print(f"\ninterrupted, {plan.output} was not touched; log: {plan.log}", file=sys.stderr)
        raise
    except FileNotFoundError:
        raise Refused("no-tool", f"cannot run {step.argv[0]}", "it is not on PATH", f"install {step.argv[0]}") from None
    log.flush()
    if code:
        print(printable(_tail(plan.log)), file=sys.stderr)
        raise _failed(step, plan, code)
    print(f"{step.doing}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _environment(plan: Plan) -> dict[str, str]:
    """The user's, without what an outer make says to its children, and without the variables that NCCL's makefiles
    would take over what the plan states; temporary files of compilers go where they are removed."""
    dropped = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "NVCC", "CUDA_LIB", "CUDA_INC", "BUILDDIR", "NVCC_GENCODE")
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return {**kept, "TMPDIR": str(plan.work / "tmp"), "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def _failed(step: Step, plan: Plan, code: int) -> Fault:
    how = f"{step.argv[0]} ended by signal {-code}" if code < 0 else f"{step.argv[0]} ended with code {code}"
    why = f"{how}; the whole log is {plan.log}"
    if step.name == "source":
        fix = f"try again; is there a tag {plan.tag}? or fetch the tree elsewhere and use --source DIR"
        return Transient("no-source", f"cannot fetch NCCL {plan.tag}", why, fix)
    if step.name == "image":
        fix = "try again; or name an image that is here with --base-image, or build with --native"
        return Transient("no-image", f"cannot prepare an image from {_image(plan)}", why, fix)
    fix = "mend what the log names; where memory ran out, fewer --jobs help"
    return Broken("build-failed", f"cannot build NCCL {plan.version}", why, fix)


def _image(plan: Plan) -> str:
    return plan.road.image if isinstance(plan.road, Docker) else ""


def _tail(log: Path) -> str:
    size = log.stat().st_size
    with log.open("rb") as file:
        file.seek(max(0, size - 16384))
        return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-TAIL:])


def _result(plan: Plan) -> Path:
    """What the steps made, once it has said its version. Raises Broken when it is not what was planned."""
    made = plan.work / "build" / "lib" / "libnccl.so.2"
    what = f"cannot use what was built as NCCL {plan.version}"
    if not made.is_file():
        why = f"make made no lib/libnccl.so.2; the whole log is {plan.log}"
        hint = "an engine on another machine (DOCKER_HOST) cannot write here: use one of this box, or --native"
        raise Broken("no-result", what, why, hint if isinstance(plan.road, Docker) else "read the log")
    try:
        said = Version(*library.version_of(made))
    except Fault as fault:
        raise Broken("no-result", what, fault.why, f"read {plan.log}") from None
    if said != plan.version:
        fix = "name the version that the source tree has"
        raise Broken("wrong-result", what, f"it says that it is {said}", fix)
    return made


def _place(made: Path, plan: Plan) -> Path:
    """Move the library to where it belongs, in one step each: into a new folder, or over the old library."""
    ready = plan.work / "ready"
    kept = ready / "lib" / plan.output.name
    kept.parent.mkdir(parents=True)
    made.resolve().rename(kept)
    kept.chmod(0o755)
    about = {**plan.as_dict(), "built": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    (ready / "build.json").write_text(json.dumps(about, indent=2) + "\n")
    with kept.open("rb") as file:
        os.fsync(file.fileno())
    home = plan.output.parent.parent
    try:
        ready.rename(home)
    except OSError:  # there is an older one: a running rank may have it mapped, so the file is replaced, never written
        plan.output.parent.mkdir(parents=True, exist_ok=True)
        kept.replace(plan.output)
        (ready / "build.json").replace(home / "build.json")
    return plan.output
