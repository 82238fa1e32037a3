"""What the wizard knows of this box, read out of what the box's own commands printed. Pure.

`gathering.py` runs the commands; a recording of what they printed on another platform is as good (tests/facts).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Facts:
    """None is "could not be found out". Ports are those of TCP."""

    platform: str  # debian, fedora, macos, wsl, linux
    root: bool = False
    systemd: bool = False
    container: bool = False
    sshd: str = ""  # path of the daemon
    keygen: bool = True
    socket_holds: list[int] = field(default_factory=list)  # ports on which ssh.socket listens in sshd's place
    launchd_holds: bool = False  # macOS: launchd listens in sshd's place, always
    remote_login: bool = False  # macOS
    answers: dict[int, str] = field(default_factory=dict)  # port of loopback → the banner that came, "" for another's
    config_ports: list[int] = field(default_factory=list)  # said in sshd's configuration, flodl's own files left out
    listen_addresses: list[str] = field(default_factory=list)  # likewise
    key_files: list[str] = field(default_factory=list)  # AuthorizedKeysFile, where it is said
    includes_dropins: bool | None = None  # sshd_config reads sshd_config.d
    sftp_configured: bool | None = None
    selinux: str = ""  # enforcing, permissive, disabled
    ssh_port_t: list[int] | None = None
    semanage: bool = False
    firewalls: list[str] = field(default_factory=list)  # ufw, firewalld, nftables, netfilter-persistent, macos
    wsl_networking: str = ""  # nat, mirrored
    rrsync: str = ""
    rsync: str = ""
    nologin: str = ""
    folders: dict[str, str] = field(default_factory=dict)  # path → dir, file, absent, unreadable
    user: str = ""
    dropin: str | None = None  # what is installed of ours

    @property
    def service(self) -> str:
        """sshd's unit: Debian and its kin call it ssh."""
        return "ssh" if self.platform in ("debian", "wsl") else "sshd"


def read(raw: Mapping[str, str]) -> Facts:
    """The facts in what was printed: keys are the names of `gathering.QUESTIONS`, a missing one was not answered."""
    platform = _platform(raw)
    return Facts(
        platform=platform,
        root=raw.get("uid", "").strip() == "0",
        systemd=raw.get("systemd", "").strip() == "yes",
        container=raw.get("container", "").strip() not in ("", "none"),
        sshd=raw.get("sshd", "").strip(),
        keygen=bool(raw.get("ssh-keygen", "").strip()),
        socket_holds=_socket_ports(raw),
        launchd_holds=platform == "macos",
        remote_login="com.openssh.sshd" in raw.get("launchctl", ""),
        answers=_answers(raw.get("knock", "")),
        config_ports=[int(port) for port in re.findall(r"(?im)^\s*Port[ \t=]+(\d+)\s*$", raw.get("sshd_config", ""))],
        listen_addresses=re.findall(r"(?im)^\s*ListenAddress[ \t=]+(\S+)", raw.get("sshd_config", "")),
        key_files=_key_files(raw.get("sshd_config", "")),
        includes_dropins=_includes(raw.get("sshd_config")),
        sftp_configured=_sftp(raw.get("sshd_config")),
        selinux=raw.get("getenforce", "").strip().lower(),
        ssh_port_t=_ssh_port_t(raw.get("semanage-ports")),
        semanage=bool(raw.get("semanage", "").strip()),
        firewalls=_firewalls(raw, platform),
        wsl_networking=raw.get("wslinfo", "").strip().lower() or "nat" if platform == "wsl" else "",
        rrsync=raw.get("rrsync", "").strip(),
        rsync=raw.get("rsync", "").strip(),
        nologin=raw.get("nologin", "").strip(),
        folders=_folders(raw.get("folders", "")),
        user=raw.get("user", "").strip(),
        dropin=raw.get("dropin"),
    )


def _platform(raw: Mapping[str, str]) -> str:
    if raw.get("uname", "").strip() == "Darwin":
        return "macos"
    if "microsoft" in raw.get("proc-version", "").lower():
        return "wsl"
    release = raw.get("os-release", "")
    kin = " ".join(re.findall(r"(?m)^ID(?:_LIKE)?=\"?([^\"\n]*)", release)).lower().split()
    if {"debian", "ubuntu"} & set(kin):
        return "debian"
    if {"fedora", "rhel", "centos"} & set(kin):
        return "fedora"
    return "linux"


def _socket_ports(raw: Mapping[str, str]) -> list[int]:
    """`systemctl show ssh.socket -p ActiveState,Listen`: Listen=[::]:22 (Stream)."""
    shown = raw.get("ssh.socket", "")
    if "ActiveState=active" not in shown:
        return []
    return sorted({int(port) for port in re.findall(r"(?m)^Listen=.*?:(\d+) \(Stream\)", shown)} or {22})


def _answers(text: str) -> dict[int, str]:
    """Lines "port banner"; a port that does not answer has none."""
    found = {}
    for line in text.splitlines():
        port, _, banner = line.partition(" ")
        if port.isdigit():
            found[int(port)] = banner if banner.startswith("SSH-") else ""
    return found


def _includes(config: str | None) -> bool | None:
    return None if config is None else bool(re.search(r"(?im)^\s*Include\s+.*sshd_config\.d/", config))


def _key_files(config: str) -> list[str]:
    """sshd takes the first."""
    found = re.search(r"(?im)^\s*AuthorizedKeysFile[ \t=]+(.+)$", config)
    return found[1].split() if found else []


def _sftp(config: str | None) -> bool | None:
    return None if config is None else bool(re.search(r"(?im)^\s*Subsystem\s+sftp\s", config))


def _ssh_port_t(text: str | None) -> list[int] | None:
    """`semanage port -l`: ssh_port_t tcp 2222, 22."""
    if text is None or "ssh_port_t" not in text:
        return None
    return [
        int(port) for line in re.findall(r"(?m)^ssh_port_t\s+tcp\s+(.*)$", text) for port in re.findall(r"\d+", line)
    ]


def _firewalls(raw: Mapping[str, str], platform: str) -> list[str]:
    found = []
    if re.search(r"(?im)^ENABLED=yes", raw.get("ufw.conf", "")):
        found.append("ufw")
    services = ("firewalld", "nftables", "netfilter-persistent")
    found += [name for name in services if raw.get(name, "").strip() == "active"]
    if platform == "macos" and "enabled" in raw.get("socketfilterfw", "").lower():
        found.append("macos")
    return found


def _folders(text: str) -> dict[str, str]:
    pairs = (line.partition(" ") for line in text.splitlines())
    return {path: kind for kind, _, path in pairs if path}
