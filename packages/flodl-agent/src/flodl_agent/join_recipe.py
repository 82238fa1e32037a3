"""What one `fdl join` is to do: the flags laid over the ``join:`` block. Pure.

A flag wins over its key. `--ssh` in its short form replaces target, user and port and keeps the block's key file and
options; `--persist` can only turn on; a tail behind ``--`` replaces the block's arguments, an empty one too.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass

import msgspec

from flodl_wire import address, devices, hosts
from flodl_wire.address import Address
from flodl_wire.config import TOKEN, Ssh
from flodl_wire.devices import Devices
from flodl_wire.entry_words import Words, split
from flodl_wire.faults import Fault, Refused
from flodl_wire.join_block import JoinBlock, ssh_target


@dataclass(frozen=True)
class Recipe:
    """`controller` is where to dial, with `ssh` as seen from there. `args` None: those that the controller states."""

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
    folder: str  # of the project; ranks run there

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
    line = flags.bin or block.bin
    if line is None or not line.strip():
        raise _missing("what to run", "name the training script: --bin train.py, or bin: in the join block")
    try:
        words = split(shlex.split(line))
    except ValueError as err:
        raise Refused(
            "bad-bin", f"cannot read {'--bin' if flags.bin else 'join.bin'}: {line!r}", str(err), "close it"
        ) from None
    args = tail if tail is not None else block.args
    if args is None and words.args:
        args = words.args
    host = flags.host or block.host or name
    if flaw := hosts.flaw(host):
        raise Refused("bad-host-name", f"cannot call this box {host!r}", flaw, "give it a name with --host")
    offered = flags.devices if flags.devices is not None else block.devices
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
        data_path=flags.data_path or block.data_path,
        gpu_ram_share=flags.gpu_ram_share if flags.gpu_ram_share is not None else block.gpu_ram_share,
        sig_probe=block.sig_probe and not flags.no_sig_probe,
        folder=folder,
    )


def _ssh(flags: argparse.Namespace, block: JoinBlock) -> Ssh | None:
    written = ssh_target(block.ssh, "join.ssh") if isinstance(block.ssh, str) else block.ssh
    if flags.ssh is not None:
        typed = ssh_target(flags.ssh, "--ssh")
        kept = written or Ssh()
        written = msgspec.structs.replace(typed, identity_file=kept.identity_file, options=kept.options)
    if flags.identity is not None:
        if written is None:
            raise Refused(
                "usage", "cannot use --identity", "it is the key for --ssh, and no ssh host is named", "add --ssh"
            )
        written = msgspec.structs.replace(written, identity_file=flags.identity)
    return written


def _missing(what: str, fix: str) -> Fault:
    return Refused("usage", "cannot join", f"nobody said {what}", fix)
