"""The keeper's side of the fork server (forkserver.py): starts it, learns the pids of what it forked, lets them run.
Standard library only.

The order of things makes a rank the keeper's child before it does anything, and lets none of its exits be missed: pids
are noted while the fork server, their parent, still lives; then it ends and the ranks come to the keeper (the nearest
subreaper); only then are they let go. Whatever goes wrong before that leaves nobody running, and the keeper starts the
ranks the ordinary way.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

_SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forkserver.py")  # noqa: PTH100, PTH118, PTH120
_MARSHAL = 2  # the version that every Python 3 reads


class Forked:
    """A rank that subprocess knows nothing of: what the keeper needs of a Popen."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Forking:
    """One fork server for `children` (the keeper's; argv, env and cwd as bytes). Raises OSError when it cannot start.

    `order`: {"module": what -m names, or "", "modules": to load, "head": words of argv before the script or -m,
    "before_arguments": words from there to the program's own, "patience_s": seconds it may take}.
    """

    def __init__(
        self, order: dict[str, Any], children: list[dict[str, Any]], now: float, before_exec: Callable[[], None]
    ) -> None:
        self.children = children
        self.pids: list[int] = []  # of `children` in their order, once they are forked
        self.why = ""  # they are not to be forked; "" while all is well
        self._patience: float = order["patience_s"]
        self._until: float = now + self._patience
        self._text = b""
        self.reports, reports = os.pipe()
        orders, self._orders = os.pipe()
        go, self._go = os.pipe()
        first, head = children[0], order["head"]
        common = set(first["env"].items()).intersection(*(child["env"].items() for child in children[1:]))
        ends = [self._write_plan(order, common), reports, orders, go]
        try:
            self._process = subprocess.Popen(
                [*first["argv"][:head], _SERVER, ",".join(map(str, ends)), *first["argv"][head:]],
                env=dict(common),
                cwd=first["cwd"],
                stdin=subprocess.DEVNULL,
                stdout=first["out"],  # what the imports print is printed once, by the first rank
                stderr=first["err"],
                pass_fds=[*ends, *(child[stream] for child in children for stream in ("out", "err"))],
                start_new_session=True,
                preexec_fn=before_exec,
            )
        except BaseException:
            self._close()
            raise
        finally:
            for end in ends:
                os.close(end)
        self.pid = self._process.pid
        os.set_blocking(self.reports, False)

    def _write_plan(self, order: dict[str, Any], common: set[tuple[bytes, bytes]]) -> int:
        """In a file without a name. A rank's environment is what it has beside the common one: what a wrapper of Python
        may add stays.
        """
        ranks = [
            {"env": dict(child["env"].items() - common), "out": child["out"], "err": child["err"]}
            for child in self.children
        ]
        plan = {name: order[name] for name in ("module", "modules", "before_arguments")}
        number = os.memfd_create("fork server's plan")
        with open(number, "wb", closefd=False) as file:
            file.write(marshal.dumps({**plan, "keeper": os.getpid(), "ranks": ranks}, _MARSHAL))
        return number

    def hear(self) -> None:
        """Take what it reports: `pids` or `why` may be known afterwards."""
        with contextlib.suppress(BlockingIOError):
            self._text += os.read(self.reports, 1 << 16)
        if self.pids or self.why or not self._text.endswith(b"\n"):
            return
        word, _, rest = self._text.decode(errors="replace").strip().partition(" ")
        if word == "pids":
            self.pids = [int(pid) for pid in rest.split()]
        else:
            self.why = rest

    def release(self) -> None:
        """All pids are noted: it may end."""
        with contextlib.suppress(BrokenPipeError):  # it has been killed, which is just as well
            os.write(self._orders, b".")

    def seconds_left(self, now: float) -> float:
        return max(0.0, self._until - now)

    def watch(self, now: float) -> None:
        """End it when its time is up; its death then is noticed like any other."""
        if not self.pids and now > self._until:
            self.why = self.why or f"it took longer than {self._patience:g} s"
            os.kill(self.pid, signal.SIGKILL)  # not by Popen, which might reap it: its end is the keeper's to see

    def bury(self) -> bool:
        """It has ended: let the ranks go, which are the caller's children now. False when there are none, or none that
        were noted.
        """
        code = self._process.wait()
        self.hear()
        if self.pids:
            with contextlib.suppress(BrokenPipeError):  # all of them have been killed
                os.write(self._go, b"." * len(self.pids))
        elif not self.why:
            self.why = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit {code}"
        self._close()
        return bool(self.pids)

    def _close(self) -> None:
        for number in (self.reports, self._orders, self._go):
            os.close(number)
