"""The fork server: one process that imports what a host's ranks will, and becomes each of them by fork.

The keeper runs it by path, with the interpreter, options, environment and folder of the ranks. It imports nothing of
ours and nothing that Python has not loaded at its start, so that a project's own `json.py` is found here by exactly
those who would find it in a rank. A file in memory (marshal version 2, which every Python 3 reads) says what to load
and which ranks to make. Then

    keeper ◀─ reports ── "pids 12 13"     all are forked, and each waits for its byte
    keeper ◀─ reports ── "failed why"     not to be done here; the keeper starts them the ordinary way
    keeper ── orders ──▶ one byte         all are noted: the fork server ends, and the keeper inherits the ranks
    keeper ── go ──────▶ a byte each      the keeper is their parent now: run. End of file: there is no keeper, so end

A rank then is what ``python train.py`` makes of it: own session, `__main__`, sys.argv, sys.path, environment, output,
random numbers. What differs all the same stands in docs/decisions.md.
"""

# What Python makes of a script is kept before anything is imported, and pathlib never is.
# ruff: noqa: E402, PTH109, PTH118, PTH120, PTH123, PTH208

import sys

SCRIPT_MAIN = {name: value for name, value in globals().items() if name.startswith("__")}  # as Python begins a script

import builtins
import gc
import marshal
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any

    Plan = dict[str, Any]
    Hook = Callable[[type[BaseException], BaseException, TracebackType | None], object]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_SIGKILL = 9
_ARG_START, _ARG_END = 45, 46  # of /proc/self/stat behind the name; proc(5) numbers them 48 and 49


class CannotServe(Exception):
    """Why these ranks must not be forked from here."""


def main() -> None:
    plan_file, reports, orders, go = (int(word) for word in sys.argv[1].split(","))
    plan = marshal.loads(os.pread(plan_file, os.fstat(plan_file).st_size, 0))
    os.close(plan_file)
    try:
        folder = settle(plan)
        load(plan["modules"])
        look_around(folder)
        rank = fork(plan["ranks"], reports, orders)
    except BaseException as error:  # whatever a module does at its import: the ranks are told of it by their own
        os.write(reports, f"failed {' '.join(str(error).split()) or type(error).__name__}\n".encode())
        os._exit(1)
    become(rank, plan["keeper"], go)
    for number in {reports, orders, go, *(each[name] for each in plan["ranks"] for name in ("out", "err"))}:
        os.close(number)
    run(plan["module"])


# ---- what all ranks share


def settle(plan: "Plan") -> str:
    """Make our command line theirs, which ours ends in. Modules are to be found as a rank finds them: first in the
    script's folder (with -m: the current one), which is returned; with -I or -P in none, "".
    """
    head = len(sys.orig_argv) - len(sys.argv)
    sys.orig_argv[head : head + 2] = []
    sys.argv[:] = ["-m" if plan["module"] else sys.argv[2], *sys.argv[2 + plan["before_arguments"] :]]
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        return ""
    sys.path[0] = os.getcwd() if plan["module"] else os.path.dirname(os.path.realpath(sys.argv[0]))
    return sys.path[0]


def load(modules: list[str]) -> None:
    """Import `modules` ("torch", or "package:Name" for one that arrives lazily). One that is not installed is left to
    the rank to miss.
    """
    gc.disable()  # imports make no garbage to speak of, and looking for it is a quarter of their time
    for entry in modules:
        module, _, name = entry.partition(":")
        try:
            found = __import__(module, fromlist=["*"] if name else [])
        except ModuleNotFoundError as error:
            if error.name and (module == error.name or module.startswith(error.name + ".")):
                continue
            raise
        if name:
            getattr(found, name)


def look_around(project: str) -> None:
    """Raises CannotServe when a fork of this process would be no honest rank. `project`: its folder on sys.path."""
    for name, module in list(sys.modules.items()):
        file = None if "." in name or name == "__main__" else getattr(module, "__file__", None)
        if isinstance(file, str):
            folder, last = os.path.split(file)
            if project == (os.path.dirname(folder) if last == "__init__.py" else folder):
                raise CannotServe(f"the project has a module {name} of its own")
    if sys.gettrace() or sys.getprofile():
        raise CannotServe("a debugger or profiler watches the interpreter")
    if threads() > 1:
        child = os.fork()  # OpenBLAS ends its threads at a fork and makes new ones when it needs them; so may others
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        if threads() > 1:
            raise CannotServe(f"the imports left {threads() - 1} threads running, which no fork takes along")


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def fork(ranks: "list[Plan]", reports: int, orders: int) -> "Plan":
    """The rank this process is now. Only ranks return: the fork server itself ends when the keeper has noted them."""
    sys.stdout.flush()
    sys.stderr.flush()
    gc.freeze()  # or the first collection in a rank would touch, and so copy, every page of what they share
    gc.enable()
    pids = []
    for rank in ranks:
        pid = os.fork()
        if pid == 0:
            return rank
        pids.append(str(pid))
    os.write(reports, f"pids {' '.join(pids)}\n".encode())
    os.read(orders, 1)
    os._exit(0)


# ---- one rank


def become(rank: "Plan", keeper: int, go: int) -> None:
    os.setsid()
    if not os.read(go, 1):
        os._exit(0)
    die_with(keeper)
    os.dup2(rank["out"], 1)
    os.dup2(rank["err"], 2)
    os.environb.update(rank["env"])
    show_our_words()
    draw_new_lots()


def die_with(keeper: int) -> None:
    """The kernel KILLs us when the keeper ends: not to be asked for before it is our parent."""
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    if os.getppid() != keeper:
        os._exit(0)


def show_our_words() -> None:
    """Have ps show the rank's command line, written over ours, in whose place it fits: without two words of ours."""
    import ctypes

    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    with open("/proc/self/cmdline", "rb") as file:
        words = file.read().split(b"\0")
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    at = words.index(os.fsencode(__file__)) if os.fsencode(__file__) in words else -1
    if start and at > 0:
        ctypes.memmove(start, b"\0".join(words[:at] + words[at + 2 :]).ljust(end - start, b"\0"), end - start)


def draw_new_lots() -> None:
    """What was drawn at an import is drawn again: no two ranks may have it in common. (`random` does so by itself.)"""
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    if "multiprocessing.process" in sys.modules:
        sys.modules["multiprocessing.process"].current_process().authkey = os.urandom(32)
    generator = getattr(sys.modules.get("torch"), "default_generator", None)
    if generator is not None:
        generator.seed()


def run(module: str) -> None:
    """What ``python -m MODULE`` or, without one, ``python SCRIPT`` does."""
    main = type(sys)("__main__")
    main.__dict__.clear()
    main.__dict__.update(SCRIPT_MAIN, __builtins__=builtins)
    if "__annotations__" in SCRIPT_MAIN:
        main.__annotations__ = {}
    try:
        if module:
            for attribute in ("__file__", "__cached__"):
                main.__dict__.pop(attribute, None)
            sys.modules["__main__"] = main
            import runpy

            runpy._run_module_as_main(module)  # type: ignore[attr-defined] # what Python itself calls
            return
        path = os.path.join(os.getcwd(), sys.argv[0])  # no more tidied up than Python does
        with open(path, "rb") as file:
            source = file.read()
        main.__file__ = path
        main.__loader__ = type(SCRIPT_MAIN["__loader__"])("__main__", path)
        sys.modules["__main__"] = main
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)
    except BaseException:
        sys.excepthook = beginning_with_the_script(sys.excepthook)
        raise


def beginning_with_the_script(hook: "Hook") -> "Hook":
    """`hook`, shown a traceback that begins in the script and not here."""

    def show(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.last_traceback = trace
        hook(kind, error.with_traceback(trace), trace)

    return show


if __name__ == "__main__":
    main()
