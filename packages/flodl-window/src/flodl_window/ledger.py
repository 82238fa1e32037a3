"""The ledger: who is in, with what, and every reason to stay out.

Admission is one transaction: a hello is checked against everything first and only then written down, so a refusal
leaves no trace that could refuse somebody else (the reference kept the run id of a host it had turned away). What
binds a cohort (vendor, run, NCCL, model, data) is taken from the first member that has it.

Ranks follow the roster's order, walk-ins behind it in the order they came; they are only final when the world forms.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from flodl_window.roster import RosterHost
from flodl_wire import hosts
from flodl_wire.devices import MAX_DEVICES
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer, Hello

Refuse = Callable[[str, str, str], Refused]  # code, why, fix

_NVIDIA = re.compile(r"(^|[/_-])(cu\d|cuda|sm_?\d)", re.IGNORECASE)
_AMD = re.compile(r"(^|[/_-])(rocm|hip|gfx\d)", re.IGNORECASE)


@dataclass(frozen=True)
class Entry:
    """One host that is in. `joined_s` counts from the window's opening."""

    host: str
    link: int
    agent: str
    address: str
    road: str  # local | ssh | direct
    devices: list[DeviceOffer]
    libtorch: str
    joined_s: float
    hello: Hello

    @property
    def hardware(self) -> str:
        """ "2 × cpu", "1 × NVIDIA H200 (139GB, sm90)"."""
        labels: dict[str, int] = {}
        for device in self.devices:
            label = device.label or device.kind
            labels[label] = labels.get(label, 0) + 1
        return ", ".join(f"{number} × {label}" for label, number in labels.items())


@dataclass(frozen=True)
class Cohort:
    """What this run is, as far as the controller itself knows; None or "" gates nothing."""

    nccl: bool = False
    mode: str = "cpu_cadence"
    manifest_hash: str = ""
    run_id: str = ""
    model_sig: str = ""
    dataset_sig: str = ""
    args: list[str] | None = None  # a walk-in's own arguments must equal these


@dataclass
class Ledger:
    """Members by host name, in admission order."""

    roster: list[RosterHost]
    cohort: Cohort = field(default_factory=Cohort)
    walk_ins: bool = False
    members: dict[str, Entry] = field(default_factory=dict)
    _named: dict[str, RosterHost] = field(init=False)
    _seeds: dict[str, tuple[str, str]] = field(init=False, default_factory=dict)  # what → (value, who brought it)
    # Sums kept up to date, so that the thousandth hello costs what the first did.
    _out: dict[str, None] = field(init=False)
    _first: dict[str, int] = field(init=False)  # first rank of each roster host, when every size is known
    _ranks: int = field(init=False, default=0)
    _capacity: int = field(init=False)
    _unknown: int = field(init=False)

    def __post_init__(self) -> None:
        self._named = {host.host: host for host in self.roster}
        self._out = dict.fromkeys(self._named)
        self._first = {}
        if all(host.count is not None for host in self.roster):
            first = 0
            for host in self.roster:
                self._first[host.host] = first
                first += host.count or 0
        self._capacity = sum(host.count or 1 for host in self.roster)
        self._unknown = sum(host.count is None for host in self.roster)
        self._reseed()

    @property
    def joined(self) -> int:
        """Ranks that are in."""
        return self._ranks

    @property
    def missing(self) -> list[str]:
        """Roster hosts that are not in, in the roster's order (after a member left, it stands last)."""
        return list(self._out)

    @property
    def complete(self) -> bool:
        """True when every roster host is in (true for an empty roster)."""
        return not self._out

    def capacity(self) -> tuple[int, bool]:
        """Ranks the roster gives as far as is known (an "all" host counts as one until it is in), and whether that is
        exact. Members count with what they brought.
        """
        return self._capacity, self._unknown == 0

    def admit(self, hello: Hello, link: int, address: str, joined_s: float) -> Entry:
        """Write `hello` down, or raise Refused with the sentence for its sender; a refusal changes nothing."""
        bound = self._check(hello)
        named = self._named.get(hello.host)
        road = "direct" if named is None else "local" if named.local else "ssh"
        entry = Entry(
            hello.host, link, hello.agent, address, road, list(hello.devices), hello.libtorch, joined_s, hello
        )
        self.members[hello.host] = entry
        self._ranks += len(entry.devices)
        self._count(named, len(entry.devices), 1)
        for what, value in bound.items():
            self._seeds.setdefault(what, (value, hello.host))
        return entry

    def strike(self, host: str) -> None:
        """Take a member out again (it left before the world formed); what it alone had seeded goes with it."""
        entry = self.members.pop(host, None)
        if entry is not None:
            self._ranks -= len(entry.devices)
            self._count(self._named.get(host), len(entry.devices), -1)
            if any(owner == host for _, owner in self._seeds.values()):
                self._reseed()

    def in_rank_order(self) -> list[Entry]:
        """Members as their ranks follow: the roster's order, then walk-ins as they came."""
        named = [self.members[host.host] for host in self.roster if host.host in self.members]
        return named + [entry for host, entry in self.members.items() if host not in self._named]

    def ranks(self) -> dict[str, list[int]]:
        """Global ranks by host, as the world would be if it formed now."""
        out, first = {}, 0
        for entry in self.in_rank_order():
            out[entry.host] = list(range(first, first + len(entry.devices)))
            first += len(entry.devices)
        return out

    def ranks_of(self, host: str) -> list[int]:
        """The ranks of one member as the world would be if it formed now; where the roster's size is known, as it will
        be when the roster is whole.
        """
        first = self._first.get(host, 0)
        if host in self._first:
            return list(range(first, first + len(self.members[host].devices)))
        if host not in self._named and next(reversed(self.members)) == host:
            return list(range(self._ranks - len(self.members[host].devices), self._ranks))
        for entry in self.in_rank_order():
            if entry.host == host:
                return list(range(first, first + len(entry.devices)))
            first += len(entry.devices)
        return []

    def named(self, host: str) -> RosterHost | None:
        return self._named.get(host)

    def _count(self, named: RosterHost | None, devices: int, sign: int) -> None:
        """A roster host has come (+1) or gone (-1) with so many devices."""
        if named is None:
            return
        if sign > 0:
            self._out.pop(named.host)
        else:
            self._out[named.host] = None
        if named.count is None:
            self._capacity += sign * (devices - 1)
            self._unknown -= sign

    # the checks, in the reference's order

    def _check(self, hello: Hello) -> dict[str, str]:
        """Raise Refused at the first thing that is wrong; return what this hello would bind the cohort to."""
        host = hello.host
        flaw = hosts.flaw(host)
        if flaw:
            what = "cannot use the host name of a hello"
            raise Refused("bad-host-name", what, flaw, "set FLODL_HOST_NAME on that box")

        def refuse(code: str, why: str, fix: str) -> Refused:
            return Refused(code, f"cannot admit {host}", why, fix)

        if not hello.devices:
            raise refuse("no-devices", "it offers no device", "offer some, e.g. --devices cpu:2")
        if len(hello.devices) > MAX_DEVICES:
            raise refuse(
                "too-many-devices",
                f"it offers {len(hello.devices)} devices; one host may offer {MAX_DEVICES}",
                "name fewer with --devices",
            )
        seen: set[tuple[str, int]] = set()
        for device in hello.devices:
            if (device.kind, device.index) in seen:
                raise refuse(
                    "duplicate-device", f"it offers {device.kind} {device.index} twice", "name each device once"
                )
            seen.add((device.kind, device.index))
        if host in self.members:
            there = self.members[host].address
            raise refuse(
                "host-already-in",
                f"a host of that name is in already, from {there}",
                "wait until its link has ended, or give this box another name with FLODL_HOST_NAME",
            )
        named = self._named.get(host)
        if named is None and not self.walk_ins:
            names = ", ".join(self._named) or "nobody"
            raise refuse(
                "unknown-host",
                f"the roster names {names}",
                "add it to cluster.workers, or set controller.join.discovery: true",
            )
        if named is not None:
            self._check_roster(hello, named, refuse)
        if self.cohort.nccl and any(device.kind == "cpu" for device in hello.devices):
            raise refuse(
                "mode-needs-gpus",
                f"it offers CPU ranks, and mode {self.cohort.mode} moves tensors between GPUs",
                "offer GPUs, or run mode cpu_cadence",
            )
        if hello.argv is not None and self.cohort.args is not None and hello.argv != self.cohort.args:
            raise refuse(
                "arguments-differ",
                f"its arguments are {hello.argv}, the run's are {self.cohort.args}",
                "give it the run's, or none at all",
            )
        return self._check_cohort(hello, refuse)

    def _check_roster(self, hello: Hello, named: RosterHost, refuse: Refuse) -> None:
        ours, theirs = self.cohort.manifest_hash, hello.manifest_hash
        if ours and theirs and ours != theirs:
            where = named.worker.path
            raise refuse(
                "manifest-differs",
                f"its fdl.yml in {where} is not the controller's",
                "bring both trees to the same version, then start again",
            )
        if named.count is not None and named.count != len(hello.devices):
            raise refuse(
                "devices-differ",
                f"it offers {len(hello.devices)} devices, the roster says {named.count}",
                "make local_devices say what the box has",
            )

    def _check_cohort(self, hello: Hello, refuse: Refuse) -> dict[str, str]:
        bound: dict[str, str] = {}
        sig = _given(hello.dataset_sig)
        if sig:
            bound["dataset"] = sig
            if other := self._differs("dataset", sig):
                raise refuse(
                    "dataset-differs",
                    f"its data are not those of {other[1]} ({sig[:8]} against {other[0][:8]})",
                    "give every host the same data",
                )
        if self.cohort.nccl:
            self._check_vendor(hello, bound, refuse)
        if hello.run_id:
            bound["run"] = hello.run_id
            if other := self._differs("run", hello.run_id):
                raise refuse(
                    "run-differs",
                    f"it holds run {hello.run_id[:8]}, {other[1]} holds {other[0][:8]}",
                    "the stale side takes the new run when it dials again",
                )
        if self.cohort.nccl and hello.nccl_version:
            version = ".".join(map(str, hello.nccl_version[:2]))
            bound["nccl"] = version
            if other := self._differs("nccl", version):
                raise refuse(
                    "nccl-differs",
                    f"it has NCCL {version}, {other[1]} has {other[0]}; NCCL does not talk across major.minor",
                    "build one for both with fdl nccl build",
                )
        sig = _given(hello.model_sig)
        if sig:
            bound["model"] = sig
            if other := self._differs("model", sig):
                raise refuse(
                    "model-differs",
                    f"its model is not that of {other[1]} ({sig[:8]} against {other[0][:8]})",
                    "it runs a stale tree or another program: bring it to the same version",
                )
        return bound

    def _check_vendor(self, hello: Hello, bound: dict[str, str], refuse: Refuse) -> None:
        vendor = classify(hello)
        if not vendor:
            return
        bound["vendor"] = vendor
        if other := self._differs("vendor", vendor):
            theirs = self.members[other[1]].libtorch or other[0]
            raise refuse(
                "vendors-mixed",
                f"it runs {hello.libtorch or vendor}, the cohort runs {theirs}; NCCL cannot mix vendors",
                "use one vendor, or a mode that can mix: cpu_sync, cpu_cadence",
            )

    def _differs(self, what: str, value: str) -> tuple[str, str] | None:
        seed = self._seeds.get(what)
        return seed if seed is not None and seed[0] != value else None

    def _reseed(self) -> None:
        """Derive the seeds from the controller's own knowledge and the members that are in."""
        own = {
            "run": self.cohort.run_id,
            "model": _given(self.cohort.model_sig),
            "dataset": _given(self.cohort.dataset_sig),
        }
        self._seeds = {what: (value, "the controller") for what, value in own.items() if value}
        for entry in self.members.values():
            hello = entry.hello
            brought = {
                "dataset": _given(hello.dataset_sig),
                "vendor": classify(hello) if self.cohort.nccl else "",
                "run": hello.run_id,
                "nccl": ".".join(map(str, hello.nccl_version[:2])) if self.cohort.nccl and hello.nccl_version else "",
                "model": _given(hello.model_sig),
            }
            for what, value in brought.items():
                if value:
                    self._seeds.setdefault(what, (value, entry.host))


def classify(hello: Hello) -> str:
    """The vendor of a host's GPUs: "nvidia", "amd", or "" where nothing says (a cpu label is no vendor)."""
    kinds = {device.kind for device in hello.devices}
    if "cuda" in kinds and not _AMD.search(hello.libtorch):
        return "nvidia"
    if "rocm" in kinds:
        return "amd"
    if _AMD.search(hello.libtorch):
        return "amd"
    if _NVIDIA.search(hello.libtorch):
        return "nvidia"
    return ""


def _given(sig: str) -> str:
    """A signature, or "" when it is blank or the zeros that mean "not supplied"."""
    return sig if sig.strip("0") else ""
