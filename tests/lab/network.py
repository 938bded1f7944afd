"""The lab's networks: a management LAN with the admin on it, and the fabric cable between the nodes."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from .shell import run, wait_for
from .topology import ADMIN_ADDRESS, FABRIC, TWIN, Machine, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable

MTU = 9000


def namespace_file(namespace: str) -> Path:
    return Path("/run/netns") / namespace


def inside(namespace: str) -> list[str]:
    # Not `ip netns exec`: it mounts another /sys, and an engine started from there finds no cgroups.
    return ["nsenter", f"--net={namespace_file(namespace)}"]


def create(topology: Topology) -> None:
    for namespace in topology.namespaces:
        run(["ip", "netns", "add", namespace])
        batch(["link set lo up"], namespace)
    _management(topology)
    _fabric(topology)


def remove(topology: Topology) -> None:
    for namespace in topology.namespaces:
        if namespace_file(namespace).exists():
            run(["ip", "netns", "del", namespace])


def batch(lines: Iterable[str], namespace: str = "") -> None:
    """Give `ip` many commands at once: one process instead of twenty."""
    where = ["-n", namespace] if namespace else []
    run(["ip", *where, "-batch", "-"], stdin="\n".join(lines).encode())


def _management(topology: Topology) -> None:
    admin = topology.admin_namespace
    batch(
        ["link add lan type bridge", f"addr add {ADMIN_ADDRESS}/24 dev lan", "link set lan up"],
        admin,
    )
    for machine in topology.machines:
        batch([f"link add eth0 type veth peer name {port(machine)} netns {admin}"], machine.namespace)
        batch([f"addr add {machine.address}/24 dev eth0", "link set eth0 up"], machine.namespace)
    batch(
        [f"link set {port(m)} master lan\nlink set {port(m)} up" for m in topology.machines],
        admin,
    )


def port(machine: Machine) -> str:
    """The machine's port on the management switch."""
    return f"port-{machine.key}"


def _fabric(topology: Topology) -> None:
    """Two nodes are joined by a cable, more by a switch."""
    if len(topology.nodes) == 2:
        first, second = topology.nodes
        for device in (FABRIC, TWIN):
            batch(
                [f"link add {device} type veth peer name {device} netns {second.namespace}"], first.namespace
            )
    else:
        _switch(topology)
    for node in topology.nodes:
        batch(
            [
                f"addr add {node.fabric_ip}/24 dev {FABRIC}",
                f"link set {FABRIC} mtu {MTU} up",
                f"link set {TWIN} mtu {MTU} up",
            ],
            node.namespace,
        )


def _switch(topology: Topology) -> None:
    admin = topology.admin_namespace
    for device, switch in ((FABRIC, "fabric"), (TWIN, "twin")):
        batch([f"link add {switch} mtu {MTU} type bridge", f"link set {switch} up"], admin)
        for node in topology.nodes:
            peer = f"{switch}-{node.key}"
            batch([f"link add {device} type veth peer name {peer} netns {admin}"], node.namespace)
            batch([f"link set {peer} mtu {MTU} master {switch} up"], admin)


def set_fabric(node: Machine, *, up: bool) -> None:
    """Pull or plug *node*'s fabric cable: with two nodes the other end loses its carrier too."""
    state = "up" if up else "down"
    batch([f"link set {FABRIC} {state}", f"link set {TWIN} {state}"], node.namespace)


def wait_for_carrier(nodes: Iterable[Machine]) -> None:
    """Return when the plugged cables show at *nodes*: the kernel tells a device's state up to a second late."""
    ends = [(node.namespace, device) for node in nodes for device in (FABRIC, TWIN)]
    wait_for("every fabric device to be up", lambda: all(_state(*end) == "UP" for end in ends), timeout_s=10)


def _state(namespace: str, device: str) -> str:
    return run(["ip", "-n", namespace, "-brief", "link", "show", "dev", device]).split()[1]


def set_management(topology: Topology, machine: Machine, *, up: bool) -> None:
    """Pull or plug *machine*'s management cable at the switch: silence, no reset."""
    batch([f"link set {port(machine)} {'up' if up else 'down'}"], topology.admin_namespace)


def set_direct_route(topology: Topology, machine: Machine, *, up: bool) -> None:
    """Let the admin reach *machine* directly, or (not *up*) only by way of the jump host."""
    verb = "del" if up else "add"
    batch([f"route {verb} unreachable {machine.address}/32"], topology.admin_namespace)


def fabric_bytes(node: Machine) -> int:
    """Bytes sent and received on *node*'s fabric interface since it was made."""
    text = run(["ip", "-n", node.namespace, "-s", "-s", "link", "show", FABRIC])
    received, sent = (int(number) for number in re.findall(r"(?:RX|TX):\s+bytes.*\n\s+(\d+)", text)[:2])
    return received + sent


def count_packets(node: Machine, peers: Iterable[Machine]) -> None:
    """Begin to count what *node* sends to and gets from the management addresses of *peers*."""
    _iptables(node, "-F")
    for peer in peers:
        _iptables(node, "-A", "OUTPUT", "-d", peer.address)
        _iptables(node, "-A", "INPUT", "-s", peer.address)


def counted_packets(node: Machine) -> int:
    """Packets since count_packets(), both ways."""
    rules = run([*inside(node.namespace), "iptables", "-w", "-nvxL"])
    return sum(int(count) for count in re.findall(r"^\s*(\d+)\s+\d+\s+all", rules, re.MULTILINE))


def _iptables(node: Machine, *arguments: str) -> None:
    run([*inside(node.namespace), "iptables", "-w", *arguments])


def processes(namespace: str) -> list[int]:
    """Processes of the host that live in *namespace*."""
    try:
        wanted = namespace_file(namespace).stat().st_ino
    except FileNotFoundError:
        return []
    return [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _net(entry) == wanted
    ]


def kill_processes(namespace: str) -> None:
    for pid in processes(namespace):
        with contextlib.suppress(ProcessLookupError):  # it has just gone by itself
            os.kill(pid, signal.SIGKILL)


def _net(process: Path) -> int:
    try:
        return (process / "ns/net").stat().st_ino
    except OSError:  # it has just gone
        return -1
