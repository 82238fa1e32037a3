"""Publishes and fetches ended in the middle, at every step: no manifest ever vouches for a tree that is not whole.

A step is ended by a harness that kills its own process there; a gate is held by a FIFO that it reads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from publish_worlds import World, content, whole, write

# module, function, and how often it is let through
STEPS = (
    ("selection", "select", 0),
    ("lock", "held", 0),
    ("index", "sync_folder", 0),  # the manifest has just gone
    ("copying", "copy", 0),
    ("copying", "copy", 1),
    ("mirror", "mirror", 0),
    ("sidecar", "render", 0),
    ("index", "write_whole", 0),  # an index
    ("index", "write_whole", 2),  # the sidecar
    ("index", "write_whole", 3),
    ("building", "build", 0),
    ("run_manifest", "RunManifest", 0),
)
# Runs the executable in a process that kills itself (or stops) when a function is called once more than N times, before
# or after it did its work.
HARNESS = """
import importlib, os, signal, sys
module, name, nth, when, *words = sys.argv[1:]
owner = importlib.import_module("flodl_publish." + module)
original, calls = getattr(owner, name), 0
def wrapped(*args, **kw):
    global calls
    calls += 1
    if calls > int(nth) and when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(*args, **kw)
    if calls > int(nth) and when == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return result
import flodl_publish.publishing, flodl_publish.fetching
for loaded in [m for n, m in list(sys.modules.items()) if n.startswith("flodl_publish")]:
    if getattr(loaded, name, None) is original:
        setattr(loaded, name, wrapped)
from flodl_publish.main import main
raise SystemExit(main(words))
"""


def killed(world: World, step: tuple[str, str, int], when: str, *words: object) -> int:
    command = [sys.executable, "-c", HARNESS, *map(str, step), when, *(str(word) for word in words)]
    env = {**os.environ, "HOME": str(world.root / "home")}
    return subprocess.run(command, cwd=world.root, env=env, capture_output=True, timeout=60, check=False).returncode


@pytest.fixture
def made(world: World) -> World:
    write(world.source, {"train.py": "import a\n", "a.py": "x = 1\n", "b/c.txt": "1"})
    (world.source / "l").symlink_to("b")
    world.publish("--bin", "train.py")
    world.fetch()
    write(world.source, {"a.py": "x = 2\n", "new.txt": "n"})
    (world.source / "b/c.txt").unlink()
    return world


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step)))
def test_a_publish_killed_at_any_step_leaves_a_whole_run_or_none(
    made: World, step: tuple[str, str, int], when: str
) -> None:
    words = ("publish", f"file://{made.source}", "--bin", "train.py", "--to", made.served, "--build", "true")
    assert killed(made, step, when, *words) == -signal.SIGKILL
    assert not made.manifest.exists() or whole(made.tree)
    answer = made.fetch()
    assert answer.get("published") or answer["error"]["family"] == "transient"
    made.publish("--bin", "train.py")
    assert whole(made.tree)
    assert content(made.tree) == content(made.source)
    made.fetch()
    assert content(made.worker / "tree") == content(made.source)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "step",
    [
        ("copying", "copy", 0),
        ("copying", "copy", 1),
        ("renewal", "from_folder", 0),
        ("mirror", "place_links", 0),
        ("proof", "prove", 0),
        ("index", "write_whole", 0),
        ("lock", "held", 0),
    ],
    ids=lambda step: "-".join(map(str, step)),
)
def test_a_fetch_killed_at_any_step_is_mended_by_the_next(made: World, step: tuple[str, str, int], when: str) -> None:
    made.publish("--bin", "train.py")
    assert killed(made, step, when, "fetch", f"file://{made.tree}", "--to", made.worker) == -signal.SIGKILL
    copy = made.worker / "tree"
    assert not (copy / ".fdl-run.yml").exists() or whole(copy)
    made.fetch()
    assert content(copy) == content(made.source)


def test_a_killed_gate_ends_with_its_publish(made: World) -> None:
    fifo = made.root / "go"
    os.mkfifo(fifo)
    recipe = f"echo $$ > {made.root}/pid; cat {fifo}"
    process = made.start(
        "publish", f"file://{made.source}", "--bin", "train.py", "--to", made.served, "--build", recipe
    )
    with fifo.open("w"):  # opens when the gate reads
        process.kill()
        process.communicate(timeout=30)
        gate = int((made.root / "pid").read_text())
        assert _ended(gate)
        assert not made.manifest.exists()
    assert made.publish("--bin", "train.py")["run"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_in_the_gate_publishes_nothing(made: World, number: int) -> None:
    fifo = made.root / "go"
    os.mkfifo(fifo)
    process = made.start(
        "publish", f"file://{made.source}", "--bin", "train.py", "--to", made.served, "--build", f"cat {fifo}"
    )
    with fifo.open("w"):
        process.send_signal(number)
        _, err = process.communicate(timeout=30)
    assert process.returncode == (130 if number == signal.SIGINT else -signal.SIGTERM)
    assert "Traceback" not in err
    assert ("ended; nothing is published now" in err) is (number == signal.SIGINT)
    assert not made.manifest.exists()


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("a small disk needs root: mount said " + done.stderr.decode())
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_publishes_nothing_says_so_and_recovers(made: World, small: Path) -> None:
    made.publish("--bin", "train.py", "--to", small)
    write(made.source, {"big.bin": "x" * 400_000})
    error = made.publish("--bin", "train.py", "--to", small)["error"]
    assert (error["code"], "nothing is published now" in error["why"]) == ("no-space", True)
    assert not (small / "tree/.fdl-run.yml").exists()
    (made.source / "big.bin").unlink()
    made.publish("--bin", "train.py", "--to", small)
    assert whole(small / "tree")


def test_a_worker_with_a_full_disk_has_no_run_and_recovers(made: World, small: Path) -> None:
    write(made.source, {"big.bin": "x" * 400_000})
    made.publish("--bin", "train.py")
    assert made.ask("fetch", f"file://{made.tree}", "--to", small)["error"]["code"] == "no-space"
    assert not (small / "tree/.fdl-run.yml").exists()
    (made.source / "big.bin").unlink()
    made.publish("--bin", "train.py")
    made.ask("fetch", f"file://{made.tree}", "--to", small)
    assert content(small / "tree") == content(made.source)


def test_json_says_what_happened_when_it_is_ended(made: World) -> None:
    done = made.run(
        "publish", f"file://{made.source}", "--to", made.served, "--json", "--bin", "train.py", "--build", "kill -9 $$"
    )
    error = json.loads(done.stdout)["error"]
    assert "signal 9" in error["why"]


def _ended(pid: int) -> bool:
    """Waits for its end by its own descriptor."""
    import select

    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 10)[0])
    finally:
        os.close(descriptor)
