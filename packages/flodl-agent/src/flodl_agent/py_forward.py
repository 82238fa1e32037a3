"""The forward where no `ssh` binary is: sshtunnel on paramiko, at about half OpenSSH's rate.

It holds to the same rules: no prompt, and a host key that is known must be the one that is shown. paramiko itself would
take any. Of OpenSSH's options, in the `ssh:` block and in ~/.ssh/config, it knows those that say whom to dial and as
whom; one that would make another road of it is refused by name.
"""

from __future__ import annotations

import getpass
import logging
import socket
from pathlib import Path
from typing import Any

from flodl_agent.forward_argv import ended, host_key_changed, shown
from flodl_wire.address import Address
from flodl_wire.config import Ssh
from flodl_wire.deadlines import deadline
from flodl_wire.faults import Fault, Refused, Transient

_READY = 20.0  # seconds, as for ssh
_KEEPALIVE = 30.0
_PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")

# What no `ssh` is needed for: these are heeded here …
HEEDED = ("hostname", "port", "user", "identityfile", "userknownhostsfile")
# … and these change neither the road nor who is trusted on it, or say what is done in any case.
NEEDLESS = (
    "addkeystoagent", "batchmode", "compression", "connectionattempts", "connecttimeout", "controlmaster",
    "controlpath", "controlpersist", "exitonforwardfailure", "forwardagent", "forwardx11", "hashknownhosts",
    "identitiesonly", "loglevel", "sendenv", "serveralivecountmax", "serveraliveinterval", "setenv", "tcpkeepalive",
    "updatehostkeys", "visualhostkey",
)  # fmt: skip
IN_A_FILE = ("proxycommand", "proxyjump")  # of the many things that stand in ~/.ssh/config, what cannot be left out

# How paramiko's words would be said by ssh (forward_argv.py reads those).
_IN_SSH_S_WORDS = {
    "administratively prohibited": "open failed: administratively prohibited",
    "connect failed": "open failed: connect failed: Connection refused",
}


class PyForward:
    """See `forward.Carrier`."""

    def __init__(self, ssh: Ssh, controller: Address, port: int) -> None:
        self.port = port
        self._ssh = ssh
        self._controller = controller
        self._ears = _Ears()
        self._tunnel: Any = None

    def open(self) -> None:
        import sshtunnel

        host, port, user = self._where()
        key = self._host_key(host, port)
        identity = self._ssh.identity_file or options(self._ssh).get("identityfile")
        self._tunnel = sshtunnel.SSHTunnelForwarder(
            (host, port),
            ssh_username=user,
            ssh_pkey=str(Path(identity).expanduser()) if identity else None,
            ssh_host_key=key,
            ssh_config_file=None,
            local_bind_address=("127.0.0.1", self.port),
            remote_bind_address=(self._controller.host, self._controller.port),
            set_keepalive=_KEEPALIVE,
            host_pkey_directories=[] if identity else None,
            logger=self._ears.logger,
        )
        self._tunnel.daemon_forward_servers = self._tunnel.daemon_transport = True
        try:
            self._tunnel.start()
        except (sshtunnel.BaseSSHTunnelForwarderError, OSError) as err:
            # It spoke ssh with us a moment ago: what is left to fail is the login, whose reason sshtunnel swallows.
            tunnel, self._tunnel = self._tunnel, None
            transport = getattr(tunnel, "_transport", None)
            if transport is not None:
                transport.close()  # its stop() would wait for servers that never began
            for server in getattr(tunnel, "_server_list", []):
                server.server_close()
            raise ended(self._ssh, 255, [f"Permission denied ({err})"]) from None

    def _where(self) -> tuple[str, int, str]:
        """Host, port and user, with ~/.ssh/config as ssh would read it. Raises Refused for what only ssh can do."""
        import paramiko

        target = self._ssh.target or ""
        found: dict[str, Any] = {}
        config = Path("~/.ssh/config").expanduser()
        if config.is_file():
            found = dict(paramiko.SSHConfig.from_path(str(config)).lookup(target))
        for name in IN_A_FILE:
            if found.get(name, "none") != "none":
                raise unknown(name, str(config))
        given = options(self._ssh)
        port = self._ssh.port or int(given.get("port") or found.get("port", 22))
        user = self._ssh.user or given.get("user") or found.get("user") or getpass.getuser()
        return given.get("hostname") or found.get("hostname", target), port, user

    def _host_key(self, host: str, port: int) -> Any:
        """The key that the sshd must show: the one in known_hosts; at first sight what it shows now, written there."""
        import paramiko

        file = self._known_hosts()
        names = [f"[{host}]:{port}" if port != 22 else host]
        known = paramiko.HostKeys()
        if file.is_file():
            known.load(str(file))
        entry = known.lookup(names[0])
        shows = self._shown_key(host, port, [*entry] if entry else [])
        if not entry:
            file.parent.mkdir(mode=0o700, exist_ok=True)
            with file.open("a", encoding="utf-8") as out:
                out.write(f"{names[0]} {shows.get_name()} {shows.get_base64()}\n")
        elif entry.get(shows.get_name()) != shows:
            raise host_key_changed(self._ssh, str(file))
        return shows

    def _shown_key(self, host: str, port: int, kinds: list[str]) -> Any:
        """The key that the sshd shows, of a kind we know it by when it has one."""
        import paramiko

        try:
            sock = socket.create_connection((host, port), timeout=deadline(_READY))
        except OSError as err:
            text = "timed out" if isinstance(err, TimeoutError) else err.strerror or str(err)
            unknown = isinstance(err, socket.gaierror)
            words = "Could not resolve hostname" if unknown else f"connect to {host}: {text}"
            raise ended(self._ssh, 255, [words]) from None
        transport = paramiko.Transport(sock)
        try:
            preferred = [kind for kind in _PREFERRED if kind in kinds]
            if preferred:
                transport.get_security_options().key_types = preferred
            transport.start_client(timeout=deadline(_READY))
            return transport.get_remote_server_key()
        except paramiko.SSHException as err:
            if kinds and "no acceptable host key" in str(err).lower():
                raise host_key_changed(self._ssh, str(self._known_hosts())) from None
            what = f"cannot open a forward through {shown(self._ssh)}"
            raise Transient("ssh-ended", what, f"it does not speak ssh with us: {err}") from None
        finally:
            transport.close()

    def _known_hosts(self) -> Path:
        given = options(self._ssh).get("userknownhostsfile", "")
        return Path((given.split() or ["~/.ssh/known_hosts"])[0]).expanduser()

    def failed(self) -> Fault | None:
        if self._tunnel is None or self._tunnel.is_active:
            return None
        return ended(self._ssh, 255, self._ears.heard)

    def words(self) -> list[str]:
        return list(self._ears.heard)

    def close(self) -> None:
        if self._tunnel is not None:
            servers = list(getattr(self._tunnel, "_server_list", []))
            self._tunnel.stop(force=True)
            for server in servers:  # it leaves the listening sockets to the garbage collector
                server.server_close()


def options(ssh: Ssh) -> dict[str, str]:
    """The options of the block that are heeded here, names in lower case. Raises Refused for one that needs ssh."""
    given: dict[str, str] = {}
    for option in ssh.options:
        name, _, value = option.strip().replace("=", " ", 1).partition(" ")
        name, value = name.lower(), value.strip().strip('"')
        if name in HEEDED:
            given.setdefault(name, value)  # of one key said twice OpenSSH takes the first
        elif name not in NEEDLESS and (name, value.lower()) != ("stricthostkeychecking", "accept-new"):
            raise unknown(option, "the ssh options of the join block")
    return given


def unknown(option: str, where: str) -> Fault:
    return Refused(
        "needs-ssh",
        f"cannot use {option!r} in {where}",
        "no ssh is installed on this box, and sshtunnel, which stands in for it, does not know that option",
        "install it (apt install openssh-client), or delete the option",
    )


class _Ears(logging.Handler):
    """sshtunnel says to a logger what ssh says on stderr."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.heard: list[str] = []
        self.logger = logging.Logger("flodl-forward", logging.DEBUG)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for theirs, ours in _IN_SSH_S_WORDS.items():
            if theirs in text.lower():
                text = ours
        if record.levelno >= logging.WARNING or "open failed" in text:
            self.heard.append(text)
            del self.heard[:-50]
