"""What one `fdl join` is to do: the flags laid over the ``join:`` block. Pure.

A flag wins over its key. `--ssh` in its short form replaces target, user and port and keeps the block's key file and
options; `--persist` can only turn on; a tail behind ``--`` replaces the block's arguments, an empty one too.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from flodl_wire import address, devices, hosts
from flodl_wire.address import Address
from flodl_wire.config import TOKEN, Ssh
from flodl_wire.devices import Devices
from flodl_wire.entry_words import Words, split
from flodl_wire.faults import Fault, Refused
from flodl_wire.join_block import DATA_PATH, JoinBlock, SourceBlock, check_source, data_source, ssh_target
from flodl_wire.remote_path import RemotePath


@dataclass(frozen=True)
class Recipe:
    """`controller` is where to dial, with `ssh` as seen from there. `args` None: those that the controller states.
    `program` is empty where there is a `source`.
    """

    controller: Address
    ssh: Ssh | None
    token: str | None
    program: list[str]
    args: list[str] | None
    host: str
    devices: Devices
    persist: bool
    data_path: str | None
    gpu_ram_share: float | None
    sig_probe: bool
    folder: str  # of the project; ranks run there, unless they have a source
    source: SourceBlock | None = None
    libtorch: str | None = None
    data_source: RemotePath | None = None
    identity: str | None = None  # the key for ssh, source and data_source
    ssh_options: list[str] = field(default_factory=list)

    @property
    def words(self) -> Words:
        return split(self.program)

    @property
    def road(self) -> str:
        return "ssh" if self.ssh else "direct"


def settle(flags: argparse.Namespace, tail: list[str] | None, block: JoinBlock, name: str, folder: str) -> Recipe:
    """The recipe. `name` is this box's own, when nobody gives another. Raises Refused, naming flag or key."""
    ssh = _ssh(flags, block)
    text = flags.controller or block.controller
    if text is None and ssh is None:
        raise _missing("where to dial", "name the controller: fdl join HOST[:PORT], or controller: in the join block")
    controller = address.parse(
        text or "127.0.0.1", "the controller" if flags.controller else "join.controller", address.DEFAULT_PORT
    )
    token = flags.token or block.token
    if token is not None and not TOKEN.match(token):
        raise Refused(
            "bad-token",
            "cannot use --token" if flags.token else "cannot use join.token",
            f"it has {len(token)} characters; a token is 32 lowercase hex digits",
            "copy it whole from controller.join.token",
        )
    source = _source(flags, block)
    words = _words(flags, block) if source is None else split([])
    args = tail if tail is not None else block.args
    if args is None and words.args:
        args = words.args
    host = flags.host or block.host or name
    if flaw := hosts.flaw(host):
        raise Refused("bad-host-name", f"cannot call this box {host!r}", flaw, "give it a name with --host")
    offered = flags.devices if flags.devices is not None else block.devices
    data = flags.data_source or block.data_source
    mount = data_source(data, "--data-source" if flags.data_source else "join.data_source") if data else None
    data_path = flags.data_path or block.data_path or (DATA_PATH if mount else None)
    identity = flags.identity or (ssh.identity_file if ssh else None)
    return Recipe(
        controller=controller,
        ssh=ssh,
        token=token,
        program=words.program,
        args=args,
        host=host,
        devices=devices.parse(
            "all" if offered is None else offered, "--devices" if flags.devices is not None else "join.devices"
        ),
        persist=flags.persist or block.persist,
        data_path=str(Path(folder) / Path(data_path).expanduser()) if data_path else None,
        gpu_ram_share=flags.gpu_ram_share if flags.gpu_ram_share is not None else block.gpu_ram_share,
        sig_probe=block.sig_probe and not flags.no_sig_probe,
        folder=folder,
        source=source,
        libtorch=flags.libtorch or block.libtorch,
        data_source=_through(mount, ssh),
        identity=str(Path(identity).expanduser()) if identity else None,
        ssh_options=list(ssh.options) if ssh else [],
    )


def _words(flags: argparse.Namespace, block: JoinBlock) -> Words:
    """The program of this box's own."""
    line = flags.bin or block.bin
    if line is None or not line.strip():
        fix = "name the training script, --bin train.py, or where to pull it from, --source rsync://…"
        raise _missing("what to run", f"{fix} (bin: and source: in the join block)")
    try:
        return split(shlex.split(line))
    except ValueError as err:
        raise Refused(
            "bad-bin", f"cannot read {'--bin' if flags.bin else 'join.bin'}: {line!r}", str(err), "close it"
        ) from None


def _source(flags: argparse.Namespace, block: JoinBlock) -> SourceBlock | None:
    """Where the program is pulled from; a typed --bin outranks the block's source, a typed --source its bin."""
    if flags.bin and flags.source:
        what = "cannot use --bin and --source together"
        raise Refused("usage", what, "a program is given or pulled, not both", "leave one of them out")
    kept = None if flags.bin else block.source
    typed = {key: getattr(flags, f"source_{key}") for key in ("cwd", "build", "bin")}
    typed = {key: value for key, value in typed.items() if value is not None}
    if flags.source:
        check_source(flags.source, "--source")
        return SourceBlock(flags.source, **typed)
    if kept is None and typed:
        flag = f"--source-{next(iter(typed))}"
        raise Refused("usage", f"cannot use {flag}", "it is part of a source, and none is named", "add --source")
    return msgspec.structs.replace(kept, **typed) if kept else None


def _through(mount: RemotePath | None, ssh: Ssh | None) -> RemotePath | None:
    """On the very host that --ssh names, the port and the user are those of --ssh unless the spec says its own."""
    if mount is None or ssh is None or mount.host != ssh.target:
        return mount
    return replace(mount, port=mount.port or ssh.port, user=mount.user or ssh.user or "")


def _ssh(flags: argparse.Namespace, block: JoinBlock) -> Ssh | None:
    written = ssh_target(block.ssh, "join.ssh") if isinstance(block.ssh, str) else block.ssh
    if flags.ssh is not None:
        typed = ssh_target(flags.ssh, "--ssh")
        kept = written or Ssh()
        written = msgspec.structs.replace(typed, identity_file=kept.identity_file, options=kept.options)
    if flags.identity is not None and written is None:
        if not (flags.source or flags.data_source or block.source or block.data_source):
            why = "it is the key for --ssh, --source and --data-source, and none of them is named"
            raise Refused("usage", "cannot use --identity", why, "add --ssh")
    elif flags.identity is not None and written is not None:
        written = msgspec.structs.replace(written, identity_file=flags.identity)
    return written


def _missing(what: str, fix: str) -> Fault:
    return Refused("usage", "cannot join", f"nobody said {what}", fix)
