from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from flodl_wire import process_mark


def test_this_process_lives_and_one_that_has_ended_does_not(tmp_path: Path) -> None:
    process_mark.write(tmp_path)
    marked = json.loads((tmp_path / process_mark.NAME).read_text())
    assert marked["pid"] == os.getpid() and process_mark.lives(marked)
    with subprocess.Popen(["sleep", "60"]) as child:
        other = {**marked, "pid": child.pid, "start": process_mark.started(child.pid)}
        assert process_mark.lives(other)
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert process_mark.lives(other) is False, "a zombie has ended"


def test_another_start_or_boot_is_another_process_and_of_another_box_nothing_is_known() -> None:
    marked = process_mark.mark()
    assert process_mark.lives({**marked, "start": 1}) is False
    assert process_mark.lives({**marked, "boot": "before"}) is False
    assert process_mark.lives({**marked, "pid": "?"}) is False
    assert process_mark.lives({**marked, "host": "elsewhere"}) is None
    assert process_mark.lives({}) is None
