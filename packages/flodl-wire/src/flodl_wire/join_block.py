"""The ``join:`` block as a walk-in's box writes it, with every key and refusal. `parse_join` is the only way in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from flodl_wire import address, config_refusal, devices, hosts, remote_path
from flodl_wire.config import TOKEN, Ssh, check_share
from flodl_wire.faults import Refused

DATA_SCHEME = "sshfs://"
SOURCE_SCHEMES = ("file://", "rsync://", "git+https://", "git+ssh://", "git+file://")
DATA_PATH = "/flodl/data"  # where data_source is mounted when nobody says another place


class SourceBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"origin": "from"}):
    """``join.source``: where this box pulls its program. A published run's manifest wins over the other three."""

    origin: str  # from: file://, rsync://, git+…#ref
    cwd: str | None = None  # the project's folder in it
    build: str | None = None  # a shell line
    bin: str | None = None  # what to run, relative to cwd


class JoinBlock(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What `fdl join` does when it is given no flags. None means "not said"."""

    controller: str | None = None  # host[:port]; with `ssh` as seen from there
    ssh: str | Ssh | None = None  # [user@]host[:port], or the full shape
    token: str | None = None  # 32 hex
    bin: str | None = None  # the program, as words of a command line
    args: list[str] | None = None  # its arguments; left out: those the controller states
    host: str | None = None  # this box's name in the run
    devices: str | int | list[int] | None = None  # all | 0,1 | cpu:2
    persist: bool = False
    data_path: str | None = None
    gpu_ram_share: float | None = None
    sig_probe: bool = True
    source: SourceBlock | None = None  # instead of bin: pulled and built before every dial
    libtorch: str | None = None  # auto, cpu, cu128, precompiled/cu128, a folder: fetched when it is not there
    data_source: str | None = None  # sshfs://[user@]host[:port]:/abs, mounted read-only at data_path


_KEYS: dict[str, Iterable[str]] = {
    "": JoinBlock.__struct_fields__,
    "ssh": Ssh.__struct_fields__,
    "source": SourceBlock.__struct_encode_fields__,
}


def parse_join(data: Any, source: str = "join") -> JoinBlock:
    """The join block in `data` (plain dicts and lists), validated. Raises Refused with the path of the first wrong
    key, which starts with `source`.
    """
    if data is None:
        return JoinBlock()
    try:
        block = msgspec.convert(data, JoinBlock)
    except msgspec.ValidationError as err:
        raise config_refusal.refusal(str(err), data, source, _KEYS) from None
    _check(block, source)
    return block


def _check(block: JoinBlock, source: str) -> None:
    def refuse(key: str, why: str, fix: str) -> Refused:
        return Refused("bad-config", f"cannot use {source}.{key}", why, fix)

    if block.controller is not None:
        address.parse(block.controller, f"{source}.controller")
    if block.token is not None and not TOKEN.match(block.token):
        raise refuse("token", "it is not 32 lowercase hex digits", "copy it from controller.join.token")
    if block.devices is not None:
        devices.parse(block.devices, f"{source}.devices")
    if block.host is not None and (flaw := hosts.flaw(block.host)):
        raise refuse("host", flaw, "use letters, digits, dots and dashes")
    if isinstance(block.ssh, Ssh) and not block.ssh.target:
        raise refuse("ssh", "it names no target", "add target: the host whose sshd leads to the controller")
    if isinstance(block.ssh, str):
        ssh_target(block.ssh, f"{source}.ssh")
    if block.bin is not None and not block.bin.strip():
        raise refuse("bin", "it is blank", "name the training script, e.g. bin: train.py")
    if block.source is not None:
        if block.bin is not None:
            fix = "delete one of them; what a source runs is source.bin, or in the run's own manifest"
            raise refuse("bin", "it stands beside source, and a program is given or pulled, not both", fix)
        check_source(block.source.origin, f"{source}.source.from")
    if block.data_source is not None:
        data_source(block.data_source, f"{source}.data_source")
    if block.libtorch is not None and not block.libtorch.strip():
        raise refuse("libtorch", "it is blank", "name a variant: auto, cpu, cu128")
    check_share(block.gpu_ram_share, refuse, "gpu_ram_share")


def check_source(text: str, where: str) -> None:
    """Raises Refused when `text` has no scheme that we know; flodl-publish reads the rest."""
    if not text.startswith(SOURCE_SCHEMES):
        raise Refused(
            "bad-source",
            f"cannot use {where}: {text!r}",
            "it has no scheme that says how to pull it",
            "write file:///abs, rsync://[user@]host[:port]:/tree, or git+https://host/repo#ref",
        )


def data_source(text: str, where: str) -> remote_path.RemotePath:
    """``sshfs://[user@]host[:port]:/abs``. Raises Refused."""
    found = remote_path.parse(text.removeprefix(DATA_SCHEME))
    why = found if isinstance(found, str) else ""
    if not text.startswith(DATA_SCHEME):
        why = "it has no scheme that says how to mount it"
    if why or isinstance(found, str):
        raise Refused(
            "bad-source", f"cannot use {where}: {text!r}", why, f"write {DATA_SCHEME}{remote_path.FORM}, "
            "or mount it yourself and name the folder in data_path"
        )  # fmt: skip
    return found


def ssh_target(text: str, where: str) -> Ssh:
    """``[user@]host[:port]`` as an ssh block. Raises Refused."""
    user, at, rest = text.rpartition("@")
    if at and (not user or user.startswith("-") or any(ch.isspace() or not ch.isprintable() for ch in user)):
        raise Refused("bad-address", f"cannot read {where}: {text!r}", f"{user!r} is no user's name", "user@host:port")
    found = address.parse(rest, where, default_port=0)
    return Ssh(target=found.host, port=found.port or None, user=user or None)
