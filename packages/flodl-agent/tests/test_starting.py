"""No signal to a walk-in is lost while it starts a process."""

from __future__ import annotations

import subprocess
import sys

# The interpreter runs these hooks in the middle of a fork, and swallows whatever is raised in them.
SCRIPT = """
import os, signal, sys
from flodl_agent.starting import start
class Told(BaseException): pass
def on_signal(number, frame): raise Told
signal.signal(signal.SIGTERM, on_signal)
os.register_at_fork(after_in_parent=lambda: os.kill(os.getpid(), signal.SIGTERM))
before = signal.getsignal(signal.SIGINT)
try:
    process = start(["sleep", "600"], preexec_fn=lambda: None)
    print("lost")
    process.kill()
except Told:
    print("told", signal.getsignal(signal.SIGTERM) is on_signal, signal.getsignal(signal.SIGINT) is before)
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("and nothing is left")
"""


def test_a_signal_in_the_middle_of_a_fork_is_heard_behind_it_and_the_process_ended() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "told True True\nand nothing is left\n", done.stderr
