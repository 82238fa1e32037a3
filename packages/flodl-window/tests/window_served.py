"""A real window without a fan-out, and with a hub that speaks the wire."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from flodl_window import asking
from flodl_wire import address

TESTS = Path(__file__).parent
TOKEN = "00112233445566778899aabbccddeeff"
SERVE = """
import sys
from flodl_window import siblings, cli_serve
from flodl_wire.faults import guarded
siblings.Tools.find = classmethod(lambda cls, fanout: cls([sys.executable, {hub!r}], []))
sys.exit(guarded("flodl-window", lambda: cli_serve.main(sys.argv[1:])))
""".format(hub=str(TESTS / "window_hub.py"))


class Window:
    """`flodl-window serve` in a folder of its own, held for the operator. `to`: where this box publishes to."""

    def __init__(self, folder: Path, port: int, host: str = "127.0.0.1", to: Path | None = None, **join: Any) -> None:
        self.port = port
        knobs = {"discovery": True, "token": TOKEN, "min_rank_start": 2, "start": "manual", **join}
        controller = {"host": host, "port": port, "path": "/p", "join": knobs}
        config = {"cluster": {"controller": controller}, "publish": {"to": str(to or folder / "served")}}
        (folder / "c.json").write_text(json.dumps(config))
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVE, "--config", "c.json", "--", "python", "train.py", "--lr", "1"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.first = self.process.stderr.readline()

    def state(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(asking.fetch([address.Address("127.0.0.1", self.port)])[1])
        return made

    def post(self, *headers: str) -> int:
        """A raw POST /start; the status."""
        return asking.request(address.Address("127.0.0.1", self.port), "POST /start", *headers)[0]

    def end(self) -> None:
        for number in (signal.SIGINT, signal.SIGINT):
            self.process.send_signal(number)
        assert self.process.stderr is not None
        self.process.stderr.close()
        self.process.wait(20)
