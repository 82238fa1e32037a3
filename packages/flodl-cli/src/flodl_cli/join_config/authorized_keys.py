"""The farm's line in somebody's authorized_keys: put in or brought up to date, every other byte left as it is.

Which line is ours is told by the key material, this key's or a rotated one's; `edited` is pure. The file is replaced by
rename, so sshd reads the old one or the new one.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import stat
import tempfile
from collections.abc import Collection
from dataclasses import dataclass

from flodl_wire.faults import Broken, Refused

FORBIDDEN = ("/etc/ssh", "/private/etc/ssh")
# Options in front of the key may hold quoted text, and that text anything.
_OPTION = re.compile(rb'\s*(?:[^\s"]|"(?:\\.|[^"\\])*")+')


def edited(text: bytes, line: bytes, own: Collection[bytes]) -> bytes:
    """`text` with `line` in the place of the first line that holds a key of `own`, and without the others of them;
    behind everything when there is none. Foreign lines keep every byte, line ends included.
    """
    kept: list[bytes] = []
    placed = False
    for each in text.splitlines(keepends=True):
        if not _holds(each, own):
            kept.append(each)
        elif not placed:
            placed = True
            kept.append(line + _end(each))
    if not placed:
        if kept and not kept[-1].endswith((b"\n", b"\r")):
            kept.append(b"\n")
        kept.append(line + b"\n")
    return b"".join(kept)


def without(text: bytes, own: Collection[bytes]) -> bytes:
    """`text` without the lines that hold a key of `own`."""
    return b"".join(each for each in text.splitlines(keepends=True) if not _holds(each, own))


def _end(line: bytes) -> bytes:
    return line[len(line.rstrip(b"\r\n")) :] or b"\n"


def _holds(line: bytes, own: Collection[bytes]) -> bool:
    if line.lstrip().startswith(b"#"):
        return False
    return any(word.strip() in own for word in _OPTION.findall(line))


def standing(text: bytes, line: bytes, blob: bytes, retired: Collection[bytes]) -> str:
    """What is in the file of our line: installed, differs, retired (an old key is still let in), absent."""
    lines = [each.strip() for each in text.splitlines()]
    if any(_holds(each, retired) for each in lines):
        return "retired"
    ours = [each for each in lines if _holds(each, [blob])]
    if not ours:
        return "absent"
    return "installed" if ours == [line] else "differs"


@dataclass(frozen=True)
class Place:
    """Where the line goes. `given`: by --authorized-keys, so its folder belongs to somebody's layout."""

    path: str  # absolute, links followed
    given: bool = False


def place(path: str | None) -> Place:
    """The file that is meant. Raises Refused for one that a wizard has no business in."""
    given = path is not None
    wanted = os.path.expanduser(path) if path is not None else os.path.expanduser("~/.ssh/authorized_keys")
    real = os.path.realpath(wanted)
    for folder in FORBIDDEN:
        if any((each + "/").startswith(folder + "/") for each in (os.path.abspath(wanted), real)):
            raise Refused(
                "system-file",
                f"cannot install the key in {wanted}",
                f"{folder} is the system's, and a wizard does not edit it",
                "append the line yourself; it is the file authorized_keys of the farm",
            )
    if os.path.isdir(real):
        fix = "name the file itself: --authorized-keys DIR/authorized_keys"
        raise Refused("bad-path", f"cannot install the key in {wanted}", "it is a folder", fix)
    if given and not os.path.isdir(os.path.dirname(real)):
        raise Refused("no-folder", f"cannot install the key in {wanted}", f"there is no folder {os.path.dirname(real)}")
    return Place(real, given)


def read(where: Place) -> bytes:
    """b"" when there is no such file. Raises Refused when it may not be read."""
    try:
        with open(where.path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as err:
        raise Refused("unreadable", f"cannot read {where.path}", err.strerror or str(err)) from None


def permission_flaws(where: Place) -> list[tuple[str, int]]:
    """What sshd (StrictModes) holds against the file: paths that others may write, with the mode they should have.

    Of a file that was named only itself is looked at, not its folder.
    """
    looked = [where.path] if where.given else [where.path, os.path.dirname(where.path), os.path.expanduser("~")]
    flaws = []
    for path in looked:
        with contextlib.suppress(OSError):
            mode = stat.S_IMODE(os.stat(path).st_mode)
            if mode & 0o022:
                flaws.append((path, mode & ~0o022))
    return flaws


def chmod_line(path: str, mode: int) -> str:
    return f"chmod {mode:o} {shlex.quote(path)}"


def write(where: Place, before: bytes, after: bytes) -> None:
    """Replace the file, unless it is no longer as it was read. Raises Fault, the file untouched."""
    folder = os.path.dirname(where.path)
    what = f"cannot install the key in {where.path}"
    try:
        if not where.given and not os.path.isdir(folder):
            os.mkdir(folder, 0o700)
        handle, temporary = tempfile.mkstemp(prefix=".authorized_keys-", dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(after)
                file.flush()
                _like(where.path, file.fileno())
                os.fsync(file.fileno())
            if read(where) != before:
                raise Broken("moved", what, "somebody else has written it meanwhile", "run this again")
            os.replace(temporary, where.path)
        except BaseException:
            os.unlink(temporary)
            raise
    except OSError as err:
        why = err.strerror or str(err)
        fix = "a file that is mounted by itself cannot be replaced here: name it where it lies, with --authorized-keys"
        raise Broken(
            "unwritable", what, why, fix if err.errno in (errno.EBUSY, errno.EROFS) else "the file is as it was"
        ) from None


def _like(path: str, descriptor: int) -> None:
    """Mode and owner of the file that is there; a new one is its owner's alone."""
    try:
        there = os.stat(path)
    except OSError:
        os.fchmod(descriptor, 0o600)
        return
    os.fchmod(descriptor, stat.S_IMODE(there.st_mode))
    if (there.st_uid, there.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(descriptor, there.st_uid, there.st_gid)  # root installing for another user
