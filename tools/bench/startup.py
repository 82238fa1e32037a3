"""How long a person waits for `fdl status` and other quick answers: whole processes, against `python -c pass`.

The promise is a factor: at most 5 bare interpreters with an address on the line, at most 8 with a manifest to read or
to explain, at most 6 for a tool that stands alone.
The ratio here is turned round, promise / factor, so that above 1 is good.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tools.bench.rows import report, row

from flodl_wire.state import State

TIMES = 20


def seconds(command: list[str | Path], folder: Path) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("FDL_", "FLODL_"))}
    began = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    spent = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{command}: exit {done.returncode}: {done.stderr.decode()}")
    return spent


@contextmanager
def a_run_that_answers() -> Iterator[int]:
    """A port of loopback that serves a state.json as a window does."""
    import msgspec

    state = State(
        "20261129-221500-3f2a", "training", "2 of 2 ranks", "cpu_cadence", 2, 1, 2, 2, None, None, "auto", False
    )
    body = msgspec.json.encode(state)

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()


def main(argv: list[str] | None = None) -> int:
    fdl = Path(sys.executable).parent / "fdl"
    rows = []
    with tempfile.TemporaryDirectory() as name, a_run_that_answers() as port:
        folder = Path(name)
        (folder / "fdl.yml").write_text(json.dumps({"commands": {"train": {"run": "true", "cluster": True}}}))
        worker = {"host": "here", "local_devices": "cpu:2", "path": name}
        cluster = {"controller": {"host": "127.0.0.1", "port": port, "path": name}, "workers": [worker]}
        (folder / "fdl.cluster.yml").write_text(json.dumps({"cluster": cluster}))
        cases: list[tuple[str, list[str | Path], float]] = [
            ("fdl status --json --addr", [fdl, "status", "--json", "--addr", f"127.0.0.1:{port}"], 5.0),
            ("fdl @cluster status --json", [fdl, "@cluster", "status", "--json"], 8.0),
            ("fdl help", [fdl, "help"], 8.0),
            ("fdl config show", [fdl, "config", "show"], 8.0),
            ("fdl @cluster config show --json", [fdl, "@cluster", "config", "show", "--json"], 8.0),
            ("flodl-ncclbuild build --help", [fdl.with_name("flodl-ncclbuild"), "build", "--help"], 6.0),
            ("flodl-ncclbuild list --json", [fdl.with_name("flodl-ncclbuild"), "list", "--json"], 6.0),
        ]
        for case, command, promise in cases:
            seconds(command, folder)  # byte-compiles what is new
            pairs = [(seconds(command, folder), seconds([sys.executable, "-c", "pass"], folder)) for _ in range(TIMES)]
            ours, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
            factor = statistics.median(a / b for a, b in pairs)
            rows.append(
                row(
                    case,
                    ours * 1e3,
                    bare * 1e3,
                    promise / factor,
                    unit="ms",
                    at_least=1.0,
                    factor=factor,
                    promise=promise,
                )
            )
            print(f"{case}: {factor:.2f} x python -c pass (promised: at most {promise:g})")
    return 0 if report("startup", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
