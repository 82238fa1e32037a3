"""What a signal means to somebody who has never sent one. Pure."""

from __future__ import annotations

import signal

_WORDS: dict[str, str] = {
    "SIGKILL": "nothing can catch it: the kernel out of memory, a scheduler's limit, or somebody's `kill -9`",
    "SIGTERM": "it was asked to end: by a scheduler, a service manager, `kill`",
    "SIGINT": "Ctrl-C",
    "SIGHUP": "its terminal or its ssh session went away",
    "SIGQUIT": "Ctrl-\\, or a debugger's wish for a dump",
    "SIGSEGV": "it reached into memory that is not its own: a bug in native code (an extension, a driver)",
    "SIGBUS": "memory it had been promised was not there: /dev/shm or the disk behind a mapped file is full",
    "SIGILL": "an instruction this processor does not have: a wheel or library built for another one",
    "SIGFPE": "an integer division by zero in native code",
    "SIGABRT": "native code gave up by itself: a failed assertion, a corrupted heap, or NCCL's watchdog",
    "SIGPIPE": "it wrote to a pipe whose reader had gone",
    "SIGXCPU": "its limit of processor time is used up (ulimit -t)",
    "SIGXFSZ": "a file grew past its limit (ulimit -f)",
    "SIGSTOP": "it was stopped, not ended",
    "SIGUSR1": "a scheduler's warning that time is nearly up, in many set-ups",
    "SIGUSR2": "a scheduler's warning that time is nearly up, in many set-ups",
}


def name_of(number: int) -> str:
    """ "SIGKILL", or "signal 42" for one without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def meaning(number: int) -> str:
    """One clause; "" for a signal that says nothing by itself."""
    return _WORDS.get(name_of(number), "")


def in_words(number: int) -> str:
    """ "SIGBUS (7): memory it had been promised was not there: …"."""
    name = name_of(number)
    head = f"{name} ({number})" if name.startswith("SIG") else name
    return f"{head}: {meaning(number)}" if meaning(number) else head
