"""Prints what it was given, as one line of JSON, then ends as told.

say.py [--exit RANK:CODE] [--stay RANK] [--pidfile FOLDER] [--env NAME …] [-- ANYTHING …]
"""

import json
import os
import sys
import threading
from pathlib import Path

RANK = int(os.environ.get("RANK", -1))


def main() -> int:
    own, rest = sys.argv[1:], []
    if "--" in own:
        rest = own[own.index("--") + 1 :]
        own = own[: own.index("--")]
    code, stay, names = 0, False, []
    while own:
        flag, value = own[0], own[1]
        own = own[2:]
        rank, _, number = value.partition(":")
        if flag == "--exit" and int(rank) == RANK:
            code = int(number)
        elif flag == "--stay" and int(rank) in (RANK, -1):
            stay = True
        elif flag == "--env":
            names.append(value)
    said = {
        "rank": RANK,
        "argv": rest,
        "env": {name: os.environb.get(name.encode(), b"<unset>").decode("utf-8", "surrogateescape") for name in names},
        "cwd": str(Path.cwd()),
        "pid": os.getpid(),
    }
    print(json.dumps(said), flush=True)
    if stay:
        threading.Event().wait()
    return code


if __name__ == "__main__":
    sys.exit(main())
