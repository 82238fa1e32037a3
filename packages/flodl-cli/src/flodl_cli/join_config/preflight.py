"""What this box still lacks for the door that was chosen, and the commands that mend it, in its own platform's words.
Pure: facts and a farm in, findings out.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field

from flodl_cli.join_config.facts import Facts
from flodl_cli.join_config.farm import Farm


@dataclass(frozen=True)
class Finding:
    """`state`: ok, gap (to be done), trap (works against you without a useful error), note."""

    name: str
    state: str
    text: str
    fix: list[str] = field(default_factory=list)


def preflight(farm: Farm, facts: Facts) -> list[Finding]:
    return [each for check in _CHECKS for each in check(farm, facts)]


def sudo(facts: Facts) -> str:
    return "" if facts.root else "sudo "


def install_line(facts: Facts, **packages: str) -> str:
    """The line that installs a package: its name by platform, `default` where nothing special is known."""
    name = packages.get(facts.platform, packages["default"])
    if facts.platform == "macos":
        return f"brew install {name}"
    if facts.platform == "fedora":
        return f"{sudo(facts)}dnf install {name}"
    if facts.platform in ("debian", "wsl"):
        return f"{sudo(facts)}apt install {name}"
    return f"# install {name} with this system's package manager"


def reload_line(facts: Facts) -> str:
    """What makes a running sshd take its new configuration."""
    if facts.platform == "macos":
        return f"{sudo(facts)}launchctl kickstart -k system/com.openssh.sshd"
    if facts.systemd:
        return f"{sudo(facts)}systemctl reload {facts.service}"
    return f"{sudo(facts)}kill -HUP $(cat /run/sshd.pid)"


def _daemon(farm: Farm, facts: Facts) -> Iterator[Finding]:
    if facts.platform == "macos":
        if facts.remote_login:
            yield Finding("sshd", "ok", "Remote Login is on")
        else:
            yield Finding(
                "sshd",
                "gap",
                "Remote Login, which is macOS's sshd, is off",
                [f"{sudo(facts)}systemsetup -setremotelogin on    # or: System Settings, General, Sharing"],
            )
    elif facts.sshd:
        yield Finding("sshd", "ok", f"an ssh daemon is installed: {facts.sshd}")
    elif facts.container:
        yield Finding(
            "sshd",
            "note",
            "this is a container without an ssh daemon: workers dial another sshd, and what is said here of sshd is "
            "to be done on its box",
        )
    else:
        fix = [install_line(facts, default="openssh-server")]
        if facts.systemd:
            fix.append(f"{sudo(facts)}systemctl enable --now {facts.service}")
        yield Finding("sshd", "gap", "no ssh daemon is installed", fix)


def _port(farm: Farm, facts: Facts) -> Iterator[Finding]:
    port = farm.controller.port
    banner = facts.answers.get(port)
    if banner:
        yield Finding("port", "ok", f"an ssh daemon answers on port {port}")
    elif banner is not None:
        fix = [f"# choose another: --controller {farm.controller.user}@{farm.controller.host}:PORT"]
        yield Finding("port", "gap", f"something else than ssh listens on port {port}", fix)
    elif farm.guarded and not facts.launchd_holds:
        yield Finding("port", "gap", f"nothing listens on port {port} yet: the steps below open it")
    elif farm.controller.port == 22 and facts.sshd and not facts.launchd_holds:
        line = f"systemctl enable --now {facts.service}" if facts.systemd else "/usr/sbin/sshd"
        yield Finding("port", "gap", "nothing listens on port 22", [f"{sudo(facts)}{line}"])
    if not farm.guarded:
        yield Finding(
            "guard",
            "note",
            "port 22 is where people log in, so sshd itself holds nothing back there: what the key may do stands in "
            "its own line alone",
            [f"# a port of its own has two: --controller {farm.controller.user}@{farm.controller.host}:2222"],
        )


def _socket(farm: Farm, facts: Facts) -> Iterator[Finding]:
    """The traps that give no error: who listens in sshd's place ignores what its configuration says of ports."""
    if facts.launchd_holds and farm.guarded:
        yield Finding(
            "launchd",
            "trap",
            "on macOS launchd listens for ssh, on port 22 alone: sshd's Port line is ignored",
            [f"# use the port it has: --controller {farm.controller.user}@{farm.controller.host}:22"],
        )
    if facts.socket_holds and farm.controller.port not in facts.socket_holds:
        held = ", ".join(str(port) for port in facts.socket_holds)
        yield Finding(
            "ssh.socket",
            "trap",
            f"ssh.socket holds the ssh port ({held}) and hands connections to sshd: while it does, sshd's Port line is "
            "ignored, and no error says so",
            [
                f"{sudo(facts)}systemctl disable --now ssh.socket",
                f"{sudo(facts)}systemctl enable --now ssh.service",
            ],
        )


def _configuration(farm: Farm, facts: Facts) -> Iterator[Finding]:
    if not farm.guarded and facts.dropin is not None:
        yield Finding(
            "old-drop-in",
            "gap",
            f"{farm.dropin_name} of an earlier door is still installed",
            [f"{sudo(facts)}rm /etc/ssh/sshd_config.d/{farm.dropin_name} && {reload_line(facts)}"],
        )
    if not farm.guarded or facts.launchd_holds:
        return
    if facts.includes_dropins is False:
        line = "echo 'Include /etc/ssh/sshd_config.d/*.conf'"
        yield Finding(
            "include",
            "trap",
            "sshd_config does not read sshd_config.d: a file put there changes nothing",
            [f"{sudo(facts)}sh -c \"{{ {line}; cat /etc/ssh/sshd_config; }} > /etc/ssh/sshd_config.new && "
             'mv /etc/ssh/sshd_config.new /etc/ssh/sshd_config"'],
        )  # fmt: skip
    bound = [each for each in facts.listen_addresses if _names_a_port(each)]
    if bound:
        yield Finding(
            "listen",
            "trap",
            f"sshd_config has `ListenAddress {bound[0]}` with a port in it: Port lines do not add to it",
            [f"# add to sshd_config: ListenAddress 0.0.0.0:{farm.controller.port}"],
        )


def _key_file(farm: Farm, facts: Facts) -> Iterator[Finding]:
    usual = (".ssh/authorized_keys", "%h/.ssh/authorized_keys")
    if facts.key_files and not any(each in usual for each in facts.key_files):
        where = facts.key_files[0].replace("%u", farm.controller.user)
        yield Finding(
            "key-file",
            "trap",
            f"sshd reads keys from {' '.join(facts.key_files)}, not from ~/.ssh/authorized_keys",
            [f"# install it there: --install-key --authorized-keys {where}    (append it by hand below /etc/ssh)"],
        )


def _names_a_port(address: str) -> bool:
    return "]:" in address or address.count(":") == 1


def _selinux(farm: Farm, facts: Facts) -> Iterator[Finding]:
    port = farm.controller.port
    if facts.selinux != "enforcing" or port == 22:
        return
    if facts.ssh_port_t is not None and port in facts.ssh_port_t:
        yield Finding("selinux", "ok", f"SELinux lets sshd have port {port}")
        return
    fix = [] if facts.semanage else [install_line(facts, default="policycoreutils-python-utils")]
    fix.append(f"{sudo(facts)}semanage port -a -t ssh_port_t -p tcp {port}")
    unknown = facts.ssh_port_t is None
    yield Finding(
        "selinux",
        "trap",
        f"SELinux is enforcing, and {'unless it was told so' if unknown else 'it was not told that'} port {port} is "
        "ssh's: sshd would say `Permission denied` on its bind and not a word of SELinux",
        fix,
    )


def _firewall(farm: Farm, facts: Facts) -> Iterator[Finding]:
    port = farm.controller.port
    lines = {
        "ufw": [f"{sudo(facts)}ufw allow {port}/tcp"],
        "firewalld": [
            f"{sudo(facts)}firewall-cmd --permanent --add-port={port}/tcp",
            f"{sudo(facts)}firewall-cmd --reload",
        ],
        "nftables": [
            f"{sudo(facts)}nft add rule inet filter input tcp dport {port} accept    # and into /etc/nftables.conf"
        ],
        "netfilter-persistent": [
            f"{sudo(facts)}iptables -I INPUT -p tcp --dport {port} -j ACCEPT",
            f"{sudo(facts)}netfilter-persistent save",
        ],
        "macos": ["# System Settings, Network, Firewall, Options: allow incoming connections for sshd"],
    }
    for name in facts.firewalls:
        title = "macOS' firewall" if name == "macos" else name
        yield Finding("firewall", "note", f"{title} is active here: it must let {port}/tcp in", lines[name])
    if facts.platform == "wsl":
        if facts.wsl_networking == "mirrored":
            yield Finding(
                "wsl",
                "note",
                "WSL2 with mirrored networking: Windows' firewall must let the port in (an Administrator's PowerShell)",
                [
                    f"New-NetFirewallHyperVRule -Name flodl-{port} -DisplayName flodl-{port} -Direction Inbound "
                    f"-Protocol TCP -LocalPorts {port} -VMCreatorId '{{40E0AC32-46A5-438A-A0B2-2B479E8F2E90}}'"
                ],
            )
        else:
            yield Finding(
                "wsl",
                "trap",
                "WSL2 has an address of its own behind Windows: from outside nobody reaches this sshd until Windows "
                "passes the port on (an Administrator's PowerShell; the address changes with each start of WSL)",
                [
                    f"netsh interface portproxy add v4tov4 listenport={port} connectport={port} "
                    "connectaddress=$(wsl hostname -I).Split()[0]",
                    f"New-NetFirewallRule -DisplayName flodl-{port} -Direction Inbound -Protocol TCP -LocalPort {port} "
                    "-Action Allow",
                ],
            )


def _served(farm: Farm, facts: Facts) -> Iterator[Finding]:
    if farm.door == "b":
        if facts.rrsync:
            yield Finding("rrsync", "ok", f"rrsync is here: {facts.rrsync}")
        else:
            fix = install_line(facts, fedora="rsync-rrsync", default="rsync")
            if facts.platform not in ("debian", "fedora", "wsl"):
                fix += "    # where it has no rrsync: that is support/rrsync in rsync's source"
            yield Finding("rrsync", "gap", "door b needs rrsync, which holds a worker's rsync to one folder", [fix])
        yield _folder(farm, facts, farm.served, "what workers pull", f"fdl @{farm.label} publish")
    elif farm.door == "a":
        if facts.sftp_configured is False:
            yield Finding(
                "sftp", "note", "sshd_config has no sftp subsystem; this door's key has its own (internal-sftp)"
            )
        yield _folder(farm, facts, farm.data, "what workers mount", f"{sudo(facts)}mkdir -p {shlex.quote(farm.data)}")
        yield Finding(
            "reach",
            "note",
            f"a key of door a reads whatever {farm.controller.user} may read, not {farm.data} alone: give the farm an "
            "account that may read little, or see ChrootDirectory in the drop-in",
        )


def _folder(farm: Farm, facts: Facts, path: str, what: str, fix: str) -> Finding:
    kind = facts.folders.get(path, "absent")
    if kind == "dir":
        return Finding("folder", "ok", f"{what} is here: {path}")
    if kind == "absent":
        return Finding("folder", "gap", f"{what} is not here yet: {path}", [fix])
    return Finding("folder", "gap", f"{path} is {'no folder' if kind == 'file' else 'not readable'}", [fix])


def _tools(farm: Farm, facts: Facts) -> Iterator[Finding]:
    if facts.user and facts.user != farm.controller.user:
        yield Finding(
            "user",
            "note",
            f"workers come in as {farm.controller.user}, and you are {facts.user}: the key's line belongs into "
            f"{farm.controller.user}'s authorized_keys",
        )


_CHECKS = (_daemon, _port, _socket, _configuration, _key_file, _selinux, _firewall, _served, _tools)
