"""Asks this box: each question is a command or a look, without root, bounded in time, changing nothing."""

from __future__ import annotations

import getpass
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence

from flodl_cli.join_config import facts
from flodl_cli.join_config.facts import Facts

_SECONDS = 3.0  # a command that takes longer says nothing we need
_KNOCK = 1.0
DROPINS = "/etc/ssh/sshd_config.d"
_RRSYNC = (
    "/usr/bin/rrsync",
    "/usr/local/bin/rrsync",
    "/opt/homebrew/bin/rrsync",
    "/usr/share/rsync/rrsync",
    "/usr/share/rsync/scripts/rrsync",
)
_NOLOGIN = ("/usr/sbin/nologin", "/sbin/nologin", "/usr/bin/false", "/bin/false")

# name → command; what it prints is the answer, also when it fails
QUESTIONS: dict[str, Sequence[str]] = {
    "container": ("systemd-detect-virt", "--container"),
    "ssh.socket": ("systemctl", "show", "ssh.socket", "-p", "ActiveState,Listen"),
    "firewalld": ("systemctl", "is-active", "firewalld"),
    "nftables": ("systemctl", "is-active", "nftables"),
    "netfilter-persistent": ("systemctl", "is-active", "netfilter-persistent"),
    "getenforce": ("getenforce",),
    "semanage-ports": ("semanage", "port", "-l"),
    "wslinfo": ("wslinfo", "--networking-mode"),
    "launchctl": ("launchctl", "print", "system/com.openssh.sshd"),
    "socketfilterfw": ("/usr/libexec/ApplicationFirewall/socketfilterfw", "--getglobalstate"),
}


def gather(door_port: int, folders: Sequence[str], dropin: str) -> Facts:
    """The facts; `folders` are looked at, `dropin` is the file's name that an earlier set-up may have installed."""
    return facts.read(gather_raw(door_port, folders, dropin))


def gather_raw(door_port: int, folders: Sequence[str], dropin: str) -> dict[str, str]:
    """What a recording of this box holds."""
    raw = {
        "uname": platform.system(),
        "uid": str(os.geteuid()),
        "user": user_name(),
        "systemd": "yes" if os.path.isdir("/run/systemd/system") else "no",
        "sshd": _which("sshd"),
        "ssh-keygen": _which("ssh-keygen"),
        "semanage": _which("semanage"),
        "rsync": _which("rsync"),
        "rrsync": _which("rrsync") or _first(_RRSYNC),
        "nologin": _first(_NOLOGIN),
        "knock": "".join(_knock(port) for port in sorted({22, door_port})),
        "folders": "".join(f"{_kind(path)} {path}\n" for path in folders),
    }
    for name, path in (
        ("os-release", "/etc/os-release"),
        ("proc-version", "/proc/version"),
        ("ufw.conf", "/etc/ufw/ufw.conf"),
        ("dropin", os.path.join(DROPINS, dropin)),
    ):
        _put(raw, name, lambda path=path: _file(path))  # type: ignore[misc]
    _put(raw, "sshd_config", _sshd_config)
    for name, words in QUESTIONS.items():
        _put(raw, name, lambda words=words: _run(words))  # type: ignore[misc]
    return raw


def _put(raw: dict[str, str], name: str, ask: Callable[[], str | None]) -> None:
    answer = ask()
    if answer is not None:
        raw[name] = answer


def _run(words: Sequence[str]) -> str | None:
    if shutil.which(words[0]) is None:
        return None
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace")


def _which(name: str) -> str:
    """Also where users' PATH does not look."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin", "/usr/local/sbin"])
    return shutil.which(name, path=path) or ""


def _first(paths: Sequence[str]) -> str:
    return next((path for path in paths if os.access(path, os.X_OK)), "")


def _file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return None


def _sshd_config() -> str | None:
    """sshd's own file and the drop-ins behind it, but for those that this wizard writes."""
    text = _file("/etc/ssh/sshd_config")
    if text is None:
        return None
    try:
        names = sorted(os.listdir(DROPINS))
    except OSError:
        names = []
    more = (_file(os.path.join(DROPINS, name)) for name in names if name.endswith(".conf") and not _is_ours(name))
    return "\n".join([text, *(each for each in more if each)])


def _is_ours(name: str) -> bool:
    return name.startswith("flodl-")


def _knock(port: int) -> str:
    """Who answers on that port of loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=_KNOCK) as sock:
            sock.settimeout(_KNOCK)
            try:
                banner = sock.recv(100).split(b"\n")[0].decode("ascii", "replace").strip()
            except OSError:
                banner = ""
            return f"{port} {banner}\n"
    except OSError:
        return ""


def _kind(path: str) -> str:
    if os.path.isdir(path):
        return "dir" if os.access(path, os.R_OK | os.X_OK) else "unreadable"
    return "file" if os.path.lexists(path) else "absent"


def user_name() -> str:
    """Whose account this is; "" where it has no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without a name, in a container
        return ""
