"""The process in which the ranks' TCPStore (torch, nccl_*) runs: started, watched, ended. No torch in this module."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable

from flodl_wire.faults import Broken

_WHAT = "cannot serve the ranks' rendezvous"
_BEREFT = "it runs on the controller's own box: see its memory (`dmesg -T`), and who ends processes there"
_MENDED = f"{sys.executable} -m pip install 'flodl-planes[torch]'"


class StoreChild:
    """One store. `died` gets the fault, in a thread of ours, when the process ends before `close`."""

    def __init__(self, died: Callable[[Broken], None]) -> None:
        self._died = died
        self._process: subprocess.Popen[bytes] | None = None
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - as long as we live; a pipe would want emptying
        self._lock = threading.Lock()  # between a start and a close
        self._closed = False

    def start(self) -> int:
        """The port on loopback that it serves; blocks while torch loads, some seconds. Raises Broken."""
        process = self._spawn()
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            said = json.loads(line)
        except ValueError:
            raise Broken("no-store", _WHAT, self._how_it_ended(process)) from None
        if "missing" in said:
            why = f"the controller needs torch in this mode, and its Python does not load it ({said['missing']})"
            raise Broken("no-torch", _WHAT, why, _MENDED)
        threading.Thread(target=self._watch, args=(process,), name="store's end", daemon=True).start()
        return int(said["port"])

    def close(self) -> None:
        """End it: it holds nothing that anybody wants back."""
        with self._lock:
            self._closed = True
            process = self._process
        if process is not None:
            with process:
                process.kill()
        self._words.close()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise Broken("no-store", _WHAT, "the run is over")
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "flodl_planes.hub.store_server"],
                    stdin=subprocess.PIPE,  # its end is the store's end, however we die
                    stdout=subprocess.PIPE,
                    stderr=self._words,
                )
            except OSError as err:
                raise Broken("no-store", _WHAT, str(err)) from None
            return self._process

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        with self._lock:
            how = "" if self._closed else self._how_it_ended(process)
        if how:
            self._died(Broken("store-died", "the ranks' rendezvous store is gone", how, _BEREFT))

    def _how_it_ended(self, process: subprocess.Popen[bytes]) -> str:
        """Its signal, or the last line it wrote."""
        code = process.wait()
        if code < 0:
            return f"its process was killed by signal {-code}"
        self._words.seek(0)
        lines = self._words.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"its process exited with code {code}"
