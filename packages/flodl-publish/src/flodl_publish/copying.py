"""One file copied and hashed in one pass, with its mode and its mtime."""

from __future__ import annotations

import errno
import hashlib
import os
import queue
import threading

from flodl_publish.tree import FileStat
from flodl_wire.faults import Refused, Transient

SMALL = 1 << 18  # up to here one read and one write
BLOCK = 1 << 21


def of_stat(found: os.stat_result) -> FileStat:
    return FileStat(found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_mode & 0o777)


def copy(source: str, target: str, mode: int) -> tuple[str, FileStat, FileStat]:
    """The copy's sha256, what the source was, what the copy is. `target` must not exist, nor does it when this fails.

    Raises Transient when the source changes while it is read, Refused when it may not be read.
    """
    try:
        incoming = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise _changing(source) from None
    except PermissionError:
        raise Refused("unreadable", f"cannot copy {source}", "it may not be read", "make it readable") from None
    try:
        before = os.fstat(incoming)
        outgoing = os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
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
        except BaseException:
            os.unlink(target)  # noqa: PTH108 -- half a file fills a disk that is full
            raise
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
        "source-changes", f"cannot copy {source}", "it changed while it was copied", "publish again when it rests"
    )


def _small(incoming: int, outgoing: int) -> tuple[str, int]:
    data = os.read(incoming, SMALL + 1)
    if data:
        _write(outgoing, memoryview(data))
    return hashlib.sha256(data).hexdigest(), len(data)


def _large(incoming: int, outgoing: int) -> tuple[str, int]:
    """This thread has the kernel copy block by block, another reads back what was copied and hashes it."""
    copied: queue.SimpleQueue[int] = queue.SimpleQueue()
    digest = hashlib.sha256()
    failed: list[OSError] = []

    def hash_copy() -> None:
        block = bytearray(SMALL)
        view, done = memoryview(block), 0
        try:
            while there := copied.get():
                while done < there:
                    got = os.preadv(outgoing, [view[: there - done]], done)
                    digest.update(view[:got])
                    done += got
        except OSError as err:
            failed.append(err)

    thread = threading.Thread(target=hash_copy, daemon=True)
    thread.start()
    total, step = 0, _by_kernel
    try:
        while True:
            try:
                got = step(incoming, outgoing)
            except OSError as err:
                if step is _by_hand or err.errno == errno.ENOSPC:
                    raise
                step = _by_hand  # not across these two file systems, or not on this kernel
                continue
            if not got:
                break
            total += got
            copied.put(total)
    finally:
        copied.put(0)
        thread.join()
    if failed:
        raise failed[0]
    return digest.hexdigest(), total


def _by_kernel(incoming: int, outgoing: int) -> int:
    return os.copy_file_range(incoming, outgoing, BLOCK)


def _by_hand(incoming: int, outgoing: int) -> int:
    data = os.read(incoming, BLOCK)
    _write(outgoing, memoryview(data))
    return len(data)


def _write(outgoing: int, data: memoryview) -> None:
    while data:
        data = data[os.write(outgoing, data) :]
