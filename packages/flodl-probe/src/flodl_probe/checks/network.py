"""Names, interfaces, and the road to the controller's port."""

from __future__ import annotations

import ipaddress

from flodl_probe.facts import Facts, Interface, Road
from flodl_probe.finding import Finding, error, ok, warning
from flodl_probe.question import Question

INTERFACE = "interface"
MTU = "mtu"
NAMES = "names"
ROAD = "road"
CLOCK = "clock"
PORTS = "ports"

MTU_LOW = 1280  # the least that IPv6 allows; some tunnels go below and fragment everything
CLOCK_FAR = 2.0  # seconds: logs of hosts can no longer be laid side by side
DASHBOARD = 3000


def check_interface(facts: Facts) -> list[Finding]:
    """`nccl_socket_ifname` against what exists and against the kernel's own way to the controller."""
    name, road = facts.asked.nccl_socket_ifname, facts.road
    there = [interface.name for interface in facts.interfaces if interface.up] or [
        interface.name for interface in facts.interfaces
    ]
    route = road.interface if road and road.kind == "direct" else None
    found = _twins(facts.interfaces, [name or "", route or ""]) if facts.asked.several else []
    if not name:
        if facts.asked.several and route and route != "lo":
            found.append(ok(INTERFACE, f"{route} leads to the controller (nccl_socket_ifname: {route})"))
        return found
    if name.startswith("^") or "," in name:
        return [*found, *_by_prefix(name, there)]
    plain = name.removeprefix("=")
    if plain not in there:
        up = "" if plain not in {interface.name for interface in facts.interfaces} else " (it is down)"
        return [
            *found,
            error(
                INTERFACE,
                f"there is no interface {plain}{up}",
                f"this host has {', '.join(there) or 'none'}",
                f"nccl_socket_ifname: {route}" if route and route != "lo" else "`ip -br addr` lists them",
            ),
        ]
    if plain == "lo" and facts.asked.several:
        fix = f"nccl_socket_ifname: {route}" if route and route != "lo" else "name the one that reaches the others"
        return [*found, error(INTERFACE, "nccl_socket_ifname is lo", "no other host can be reached over it", fix)]
    if route and route not in (plain, "lo"):
        return [
            *found,
            warning(
                INTERFACE,
                f"nccl_socket_ifname is {plain}, and the way to the controller is {route}",
                "right when the hosts have a network of their own for data",
                f"else nccl_socket_ifname: {route}",
            ),
        ]
    return [*found, ok(INTERFACE, plain)]


def _by_prefix(name: str, there: list[str]) -> list[Finding]:
    """NCCL takes a list's entries as beginnings of names unless "=" stands in front: eth1 also takes eth10."""
    if name[0] in "=^":
        return [ok(INTERFACE, name)]
    found = []
    for entry in (part.strip() for part in name.split(",")):
        hits = [interface for interface in there if interface.startswith(entry)]
        if entry and not hits:
            found.append(error(INTERFACE, f"there is no interface {entry}", f"this host has {', '.join(there)}"))
        elif len(hits) > 1:
            fix = f"nccl_socket_ifname: ={name}"
            found.append(warning(INTERFACE, f"{entry} means {' and '.join(hits)}", "NCCL compares beginnings", fix))
    return found or [ok(INTERFACE, name)]


def _twins(interfaces: list[Interface], ours: list[str]) -> list[Finding]:
    """Two interfaces in one subnet: the kernel answers on either, whichever was asked."""
    subnets: dict[str, list[str]] = {}
    for interface in interfaces:
        for address in interface.addresses if interface.up else []:
            try:
                network = ipaddress.ip_interface(address).network
            except ValueError:
                continue
            if not (network.is_link_local or network.is_loopback) and network.prefixlen < network.max_prefixlen:
                names = subnets.setdefault(str(network), [])
                if interface.name not in names:
                    names.append(interface.name)
    return [
        warning(
            INTERFACE,
            f"{' and '.join(names)} are both in {subnet}",
            "traffic for one may leave by the other",
            "give them different subnets, or take one down",
        )
        for subnet, names in subnets.items()
        if len(names) > 1
    ]


def check_mtu(facts: Facts) -> list[Finding]:
    name = facts.road.interface if facts.road else None
    interface = next((entry for entry in facts.interfaces if entry.name == name), None)
    if interface is None or interface.mtu is None or interface.name == "lo":
        return []
    if interface.mtu < MTU_LOW:
        why = "packets are cut up on the way"
        return [warning(MTU, f"{interface.name} has an MTU of {interface.mtu}", why, "raise it where the link allows")]
    return [ok(MTU, f"{interface.name}: {interface.mtu}")]


def check_names(facts: Facts) -> list[Finding]:
    """This box's own name as libraries look it up (gloo, MPI), and the controller's name as seen from here."""
    asked, road, found = facts.asked, facts.road, []
    if asked.several and asked.role == "worker" and not asked.local and road and road.kind == "direct":
        address = next(iter(road.resolved), "")
        if _is_loopback(address):
            found.append(
                error(
                    NAMES,
                    f"{asked.controller} is {address} on this host",
                    "it would dial itself",
                    "controller.host: an address that every host reaches, or mend /etc/hosts here",
                )
            )
    own = facts.own_addresses
    if asked.several and not asked.nccl_socket_ifname and asked.role in ("worker", "walk-in"):
        if own is None:
            fix = "add it to /etc/hosts with the address that others reach"
            found.append(warning(NAMES, "this box's own name does not resolve", "libraries that ask for it fail", fix))
        elif own and all(map(_is_loopback, own)):
            why = "libraries that look their own name up offer others an address that leads nowhere"
            fix = "put the real address beside the name in /etc/hosts, or set nccl_socket_ifname"
            found.append(warning(NAMES, f"this box's own name is {own[0]}", why, fix))
    return found or ([ok(NAMES, f"its own name is {own[0]}")] if own else [])


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def check_road(facts: Facts) -> list[Finding]:
    road = facts.road
    if road is None or facts.asked.role == "controller":
        return []
    if road.answer in ("probe", "window"):
        if road.bulk is False:
            return [
                error(
                    ROAD,
                    f"the way to {road.address} loses large packets",
                    "small ones pass, 256 KiB do not: a hop has a smaller MTU and does not say so",
                    f"ip link set {road.interface or 'eth0'} mtu 1400, and see; then mend the hop",
                )
            ]
        via = {"ssh": " through ssh", "tunnel": " through the tunnel"}.get(road.kind, f" over {road.interface or '?'}")
        return [ok(ROAD, f"{road.address}{via}")]
    return [_blocked(road, facts.asked)]


def _blocked(road: Road, asked: Question) -> Finding:
    what = f"cannot reach {road.address}"
    port = road.address.rpartition(":")[2]
    firewall = f"let it in on the controller: sudo ufw allow {port}/tcp, or sudo firewall-cmd --add-port={port}/tcp"
    if road.answer == "refused":
        if asked.nonce is not None:
            return error(ROAD, what, "a listener waits there, and something in between refuses", firewall)
        if asked.role == "worker":
            return ok(ROAD, f"{road.address} is open, and nobody listens there yet")
        return warning(ROAD, f"nobody listens at {road.address}", "the way there is open", "start the run first")
    if road.answer == "timeout":
        return error(ROAD, what, "no answer at all: a firewall drops it, or the host is off", firewall)
    if road.answer == "route":
        return error(ROAD, what, road.text or "no route to it", "ip route get ADDRESS; are both in one network or VPN?")
    if road.answer == "name":
        return error(ROAD, what, road.text, "write its address into controller.host, or add the name to /etc/hosts")
    if road.answer == "ssh":
        return error(ROAD, what, f"ssh says: {road.text}", "try the same ssh by hand, with BatchMode=yes")
    if road.answer == "other":
        return error(ROAD, f"another program answers at {road.address}", road.text, "use another controller.port")
    return error(ROAD, what, road.text or "it is silent", firewall)


def check_clock(facts: Facts) -> list[Finding]:
    road = facts.road
    if road is None or road.clock_offset is None:
        return []
    surely = abs(road.clock_offset) - road.clock_error
    if surely > CLOCK_FAR:
        side = "behind" if road.clock_offset > 0 else "ahead of"
        what = f"the clock is {surely:.0f} s {side} the controller's"
        return [warning(CLOCK, what, "logs and ages mislead, and TLS may fail", "sudo timedatectl set-ntp true")]
    return [ok(CLOCK, "as the controller's")]


def check_ports(facts: Facts) -> list[Finding]:
    found = []
    for use in facts.ports:
        if use.holder is None or use.flodl:
            continue
        if use.port == DASHBOARD:
            what = f"port {DASHBOARD} is taken by {use.holder}"
            found.append(warning(PORTS, what, "a dashboard could not be served there", "stop it, if you want one"))
        else:
            why, fix = "a run could not open its window", "stop it, or set controller.port"
            found.append(error(PORTS, f"port {use.port} is taken by {use.holder}", why, fix))
    return found or ([ok(PORTS, f"port {use.port} is free") for use in facts.ports if use.holder is None])
