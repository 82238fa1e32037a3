"""The ledger: who is in, with what, and every reason to stay out.

Admission is one transaction: a hello is checked against everything first and only then written down, so a refusal
leaves no trace that could refuse somebody else (the reference kept the run id of a host it had turned away).

Ranks follow the roster's order, walk-ins behind it in the order they came; they are only final when the world forms.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from flodl_window.cohort import Cohort, Refuse, Seeds
from flodl_window.roster import RosterHost
from flodl_wire import hosts
from flodl_wire.devices import MAX_DEVICES
from flodl_wire.faults import Refused
from flodl_wire.join_messages import DeviceOffer, Hello


@dataclass(frozen=True)
class Entry:
    """One host that is in. `joined_s` counts from the window's opening."""

    host: str
    link: int
    agent: str
    address: str
    road: str  # local | ssh | tunnel: started from here; direct | ssh: a walk-in
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


@dataclass
class Ledger:
    """Members by host name, in admission order."""

    roster: list[RosterHost]
    cohort: Cohort = field(default_factory=Cohort)
    walk_ins: bool = False
    fanout: bool = True  # the roster's agents are started from here
    members: dict[str, Entry] = field(default_factory=dict)
    _named: dict[str, RosterHost] = field(init=False)
    seeds: Seeds = field(init=False)
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
        self.seeds = Seeds(self.cohort)
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

    def admit(self, hello: Hello, link: int, address: str, joined_s: float, *, replace: bool = False) -> Entry:
        """Write `hello` down, or raise Refused with the sentence for its sender; a refusal changes nothing.

        `replace`: an entry of the same name is dead and makes room, if the newcomer may come in.
        """
        before = dict(self.members) if replace else {}
        if replace:
            self.strike(hello.host)
        try:
            self._check(hello)
        except Refused:
            if replace and hello.host in before:
                self._write(before[hello.host])
                self.members = before
                self._reseed()
            raise
        entry = Entry(
            hello.host,
            link,
            hello.agent,
            address,
            self._road(hello),
            list(hello.devices),
            hello.libtorch,
            joined_s,
            hello,
        )
        self._write(entry)
        self.seeds.take(hello)
        return entry

    def rehearse(self, hello: Hello) -> list[int]:
        """The ranks `hello` would get now. Raises Refused like `admit`; changes nothing."""
        self._check(hello)
        first = self._first.get(hello.host)
        if first is None:
            ahead = [host.host for host in self.roster]
            if hello.host in self._named:
                ahead = ahead[: ahead.index(hello.host)]
                first = sum(len(self.members[host].devices) for host in ahead if host in self.members)
            else:
                first = self._ranks
        return list(range(first, first + len(hello.devices)))

    def seed(self, what: str) -> tuple[str, str]:
        """What binds the cohort ("model", "dataset", …) and who brought it; ("", "") when nothing does."""
        return self.seeds.bound.get(what, ("", ""))

    def _road(self, hello: Hello) -> str:
        named = self._named.get(hello.host)
        if named is None or hello.road:
            return hello.road if hello.road in ("direct", "ssh") else "direct"
        return "local" if named.local else "tunnel" if named.worker.tunnel and self.fanout else "ssh"

    def _write(self, entry: Entry) -> None:
        self.members[entry.host] = entry
        self._ranks += len(entry.devices)
        self._count(self._named.get(entry.host), len(entry.devices), 1)

    def strike(self, host: str) -> None:
        """Take a member out again (it left before the world formed); what it alone had seeded goes with it."""
        entry = self.members.pop(host, None)
        if entry is not None:
            self._ranks -= len(entry.devices)
            self._count(self._named.get(host), len(entry.devices), -1)
            if any(owner == host for _, owner in self.seeds.bound.values()):
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

    def _reseed(self) -> None:
        self.seeds.derive(entry.hello for entry in self.members.values())

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

    def _check(self, hello: Hello) -> None:
        """Raise Refused at the first thing that is wrong."""
        host = hello.host
        flaw = hosts.flaw(host)
        if flaw:
            what = "cannot use the host name of a hello"
            fix = "give that box another name with --host (FLODL_HOST_NAME does the same)"
            raise Refused("bad-host-name", what, flaw, fix)

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
            raise self._already_in(hello, refuse)
        named = self._named.get(host)
        if named is None and not self.walk_ins:
            names = ", ".join(self._named) or "nobody"
            raise refuse(
                "unknown-host",
                f"the roster names {names}",
                "add it to cluster.workers, or set controller.join.discovery: true",
            )
        if named is not None and hello.road and self.fanout:
            raise refuse(
                "roster-host",
                "the roster names a host like that, and its agent is started from the controller",
                "join under another name with --host, or delete it from cluster.workers",
            )
        if named is not None:
            self._check_roster(hello, named, refuse)
        if hello.argv is not None and self.cohort.args is not None and hello.argv != self.cohort.args:
            raise refuse(
                "arguments-differ",
                f"its arguments are {hello.argv}, the run's are {self.cohort.args}",
                "give it the run's, or none at all",
            )
        self.seeds.check(hello, refuse, lambda name: self.members[name].libtorch if name in self.members else "")

    def _already_in(self, hello: Hello, refuse: Refuse) -> Refused:
        """Two boxes of one name, or a box that comes twice: not the same thing to mend."""
        there = self.members[hello.host]
        if hello.boot_id and hello.boot_id == there.hello.boot_id:
            return refuse(
                "host-already-in",
                f"this very box is in already, from {there.address}, and that agent is alive",
                "end that one first, or offer other devices under another name with --host",
            )
        return refuse(
            "host-already-in",
            f"another box of that name is in already, from {there.address}",
            "give this box another name with --host (FLODL_HOST_NAME does the same)",
        )

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
