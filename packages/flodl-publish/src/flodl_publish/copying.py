"""One file copied and hashed in one pass, with its mode and its mtime."""

from __future__ import annotations

import hashlib
import os
import queue
import threading

from flodl_publish.tree import FileStat
from flodl_wire.faults import Refused, Transient

SMALL = 1 << 18  # up to here one read and one write
BLOCK = 1 << 21
BLOCKS = 4  # in flight between the copying and the hashing thread: hashing is the slower half


def of_stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode & 0o777)


def copy(source: str, target: str, mode: int) -> tuple[str, FileStat, FileStat]:
    """The copy's sha256, what the source was, what the copy is. `target` must not exist.

    Raises Transient when the source changes while it is read, Refused when it may not be read.
    """
    try:
        incoming = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _changing(source) from None
    except PermissionError:
        raise Refused("unreadable", f"cannot publish {source}", "it may not be read", "make it readable") from None
    try:
        before = os.fstat(incoming)
        outgoing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            sha256, size = (_small if before.st_size <= SMALL else _large)(incoming, outgoing)
            after = os.fstat(incoming)
            if (size, after.st_mtime_ns) != (before.st_size, before.st_mtime_ns):
                raise _changing(source)
            os.utime(outgoing, ns=(before.st_mtime_ns, before.st_mtime_ns))
            made = os.fstat(outgoing)
            if made.st_mode & 0o777 != mode:
                os.fchmod(outgoing, mode)
                made = os.fstat(outgoing)
        finally:
            os.close(outgoing)
    finally:
        os.close(incoming)
    return sha256, of_stat(before), of_stat(made)


def sha256_of(path: str) -> str:
    """Raises OSError."""
    digest, block = hashlib.sha256(), bytearray(BLOCK)
    view = memoryview(block)
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 -- a Path per file is felt over 20,000
        while got := file.readinto(block):
            digest.update(view[:got])
    return digest.hexdigest()


def _changing(source: str) -> Transient:
    return Transient(
        "source-changes", f"cannot publish {source}", "it changed while it was copied", "publish again when it rests"
    )


def _small(incoming: int, outgoing: int) -> tuple[str, int]:
    data = os.read(incoming, SMALL + 1)
    if data:
        _write(outgoing, memoryview(data))
    return hashlib.sha256(data).hexdigest(), len(data)


def _large(incoming: int, outgoing: int) -> tuple[str, int]:
    """This thread reads and writes, another hashes the same blocks."""
    digest = hashlib.sha256()
    free: queue.SimpleQueue[bytearray] = queue.SimpleQueue()
    full: queue.SimpleQueue[tuple[bytearray, int]] = queue.SimpleQueue()
    for _ in range(BLOCKS):
        free.put(bytearray(BLOCK))

    def hash_blocks() -> None:
        while True:
            block, got = full.get()
            if not got:
                return
            digest.update(memoryview(block)[:got])
            free.put(block)

    thread = threading.Thread(target=hash_blocks, daemon=True)
    thread.start()
    total = 0
    try:
        while True:
            block = free.get()
            got = os.readv(incoming, [block])
            if not got:
                break
            total += got
            full.put((block, got))
            _write(outgoing, memoryview(block)[:got])
    finally:
        full.put((bytearray(), 0))
        thread.join()
    return digest.hexdigest(), total


def _write(outgoing: int, data: memoryview) -> None:
    while data:
        data = data[os.write(outgoing, data) :]
