"""Exit codes that every executable of the project shares.

``fdl join`` alone tells 1 (transient, worth dialling again) from 2 (permanent); everywhere else 2 is a usage error.
"""

DONE = 0
NOT_DONE = 1
USAGE = 2
NO_COMMAND = 127  # the shell's own code for "command not found"
HUB_LOST = 75  # of a relay alone: the hub is gone, or cannot be heard (EX_TEMPFAIL's number)
INTERRUPTED = 130  # 128 + SIGINT, what a shell reports after Ctrl-C
