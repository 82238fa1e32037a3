"""What a publish and a fetch cost: 20,000 files against `cp -a` and `rsync -a`, one large file against its hash alone.

`--files N` and `--large MB` for working on the benchmark; figures are those of the defaults. A stand-in for ssh runs
the other end on this box, for us and for rsync alike.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tools.bench.rows import interleaved, report, row

TOOL = str(Path(sys.executable).parent / "flodl-publish")
SSH = '#!/bin/sh\nwhile [ "$1" != box ]; do shift; done; shift; exec sh -c "$*"\n'
COPY = "import sys; from flodl_publish import copying; print(copying.copy(sys.argv[1], sys.argv[2], 0o644)[0])"
HASH = """
import hashlib, sys
digest, block = hashlib.sha256(), bytearray(1 << 20)
with open(sys.argv[1], "rb", buffering=0) as file:
    while got := file.readinto(block):
        digest.update(memoryview(block)[:got])
print(digest.hexdigest())
"""


class Bench:
    def __init__(self, root: Path, files: int) -> None:
        self.root, self.source, self.turn = root, root / "source", 0
        ssh = root / "bin/ssh"
        ssh.parent.mkdir()
        ssh.write_text(SSH)
        ssh.chmod(0o755)
        self.env = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "",
            "HOME": str(root / "home"),
            "PATH": f"{ssh.parent}:{os.environ['PATH']}",
        }
        for number in range(files):
            path = self.source / f"d{number % 200:03}" / f"f{number:05}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(hashlib.sha256(b"%d" % number).hexdigest().encode() * (1 + number % 64))
        (self.source / "train.py").write_text("x = 1\n")
        self.timed("git", "init", "-q", str(self.source))
        self.timed("git", "-C", str(self.source), "add", "-A")

    def timed(self, *command: str) -> float:
        began = time.monotonic()
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
        return time.monotonic() - began

    def fresh(self, name: str) -> str:
        self.turn += 1
        return str(self.root / f"{name}{self.turn}")

    def publish(self, to: str) -> float:
        return self.timed(TOOL, "publish", f"file://{self.source}", "--bin", "train.py", "--to", to)

    def rsync(self, target: str, *words: str, source: str = "") -> float:
        return self.timed("rsync", "-a", "--exclude=.git", *words, f"{source or self.source}/", f"{target}/")

    def first(self) -> tuple[float, float, float]:
        bare = str(self.root / "bare")
        self.rsync(bare)  # cp has no way to leave .git out

        def ours() -> float:
            to = self.fresh("served")
            took = self.publish(to)
            shutil.rmtree(to)
            return took

        def peer() -> float:
            to = self.fresh("cp")
            took = self.timed("cp", "-a", bare, to)
            shutil.rmtree(to)
            return took

        return interleaved(ours, peer, 5)

    def unchanged(self) -> tuple[float, float, float]:
        served, copy = str(self.root / "served"), str(self.root / "copy")
        for _ in range(2):
            self.publish(served)
        self.rsync(copy)
        return interleaved(lambda: self.publish(served), lambda: self.rsync(copy), 7)

    def refetch(self) -> tuple[float, float, float]:
        """One file changed, over the stand-in; `unchanged` comes before."""
        served, worker, peers = self.root / "served", str(self.root / "worker"), str(self.root / "peers")
        spec = f"rsync://box:{served}/tree"

        def change() -> None:
            self.turn += 1
            (self.source / "d000/f00000.txt").write_text(f"turn {self.turn}\n")
            self.publish(str(served))

        def ours() -> float:
            change()
            return self.timed(TOOL, "fetch", spec, "--to", worker)

        def peer() -> float:
            return self.rsync(peers, "--delete", "-e", "ssh", source=f"box:{served}/tree")

        ours(), peer(), ours(), peer()
        return interleaved(ours, peer, 7)

    def large(self, megabytes: int) -> tuple[float, float, float]:
        path = self.root / "large.bin"
        with path.open("wb") as file:
            for _ in range(megabytes):
                file.write(os.urandom(1 << 20))

        def ours() -> float:
            to = self.fresh("large")
            took = self.timed(sys.executable, "-c", COPY, str(path), to)
            Path(to).unlink()
            return took

        return interleaved(ours, lambda: self.timed(sys.executable, "-c", HASH, str(path)), 5)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.bench.publish", description=__doc__)
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--large", type=int, default=1024, metavar="MB")
    options = parser.parse_args(argv)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="flodl-bench-") as folder:
        bench = Bench(Path(folder), options.files)
        count = f"{options.files} files"
        rows = [
            row(f"first publish of {count} / cp -a", *bench.first(), at_least=round(1 / 1.5, 3), unit="s"),
            row(f"unchanged publish of {count} / rsync -a", *bench.unchanged(), at_least=round(1 / 1.5, 3), unit="s"),
            row(f"fetch, 1 of {count} changed / rsync -a", *bench.refetch(), at_least=0.5, unit="s"),
            row(f"{options.large} MB copied and hashed / hashed", *bench.large(options.large), at_least=0.8, unit="s"),
        ]
    for each in rows:
        each["load_before"] = load
    return 0 if report("publish", rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
