"""Shared memory without a name: a memfd that is mapped here and handed to others as a descriptor over a Unix socket.

Nothing is left behind by any death: the kernel frees it with the last mapping. Sizes are sealed, so that nobody can
shrink a segment under another's feet (a read past its end is a SIGBUS, which no process can catch in a useful way).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os

import numpy as np
from numpy.typing import NDArray

from flodl_wire.faults import Broken

_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034  # linux/fcntl.h; Python names them from 3.11 on only on some builds
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW = 1, 2, 4
_SEALS = _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW
_MADV_HUGEPAGE = 14

HUGE_FROM = 4 << 20  # bytes; below it huge pages only waste memory


class Segment:
    """`array`: the memory as uint8. It stays mapped while any view of it lives, also after `close`."""

    def __init__(self, fd: int, nbytes: int) -> None:
        self.fd = fd
        self.nbytes = nbytes
        if nbytes == 0:  # mmap refuses a length of 0, and a model without tensors is a model
            self.array: NDArray[np.uint8] = np.empty(0, np.uint8)
            return
        mapping = mmap.mmap(fd, nbytes)
        if nbytes >= HUGE_FROM:
            # a third off the time of four ranks where the kernel's shmem_enabled is "advise"; elsewhere it says no
            with contextlib.suppress(OSError):
                mapping.madvise(_MADV_HUGEPAGE)
        self.array = np.frombuffer(mapping, np.uint8)

    @classmethod
    def create(cls, name: str, nbytes: int) -> Segment:
        """`nbytes` of new zeros; `name` shows in /proc/PID/maps. Raises Broken when there is not enough memory."""
        fd = os.memfd_create(f"flodl-{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, nbytes)
            fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
            return cls(fd, nbytes)
        except OSError as err:
            os.close(fd)
            if err.errno in (errno.ENOMEM, errno.EFBIG, errno.ENOSPC):
                raise Broken(
                    "no-memory", f"cannot hold the model in shared memory ({nbytes / 1e6:.0f} MB)", err.strerror or "",
                    "fewer ranks on this host, or a smaller model",
                ) from None  # fmt: skip
            raise

    @classmethod
    def received(cls, fd: int, nbytes: int) -> Segment:
        """Memory that came as descriptor `fd` (taken over). Raises Broken unless it has `nbytes` and can never have
        fewer.
        """
        try:
            sealed = fcntl.fcntl(fd, _F_GET_SEALS) & _F_SEAL_SHRINK
            size = os.fstat(fd).st_size
        except OSError:
            sealed, size = 0, -1
        if not sealed or size != nbytes:
            os.close(fd)
            raise Broken(
                "bad-memory", "cannot share memory", f"the descriptor is no sealed segment of {nbytes} bytes ({size})"
            )
        return cls(fd, nbytes)

    @property
    def buffer(self) -> memoryview:
        """The memory, writable, as bytes."""
        return memoryview(self.array)  # type: ignore[arg-type]

    def close(self) -> None:
        """Give the descriptor back; the mapping goes with the last view."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
