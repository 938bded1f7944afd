"""What a lab consists of: its machines, their names, addresses and folders. Pure data."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

FABRIC = "enp1s0f1np1"  # one physical port of a DGX Spark is two netdevs and two HCAs
TWIN = "enP2p1s0f1np1"
HCAS = {"rocep1s0f1": FABRIC, "roceP2p1s0f1": TWIN}
ADMIN_ADDRESS = "10.99.1.1"
JUMP = "jump"
LETTERS = "abcdefgh"
STATE = Path(os.environ.get("LAB_STATE", "/var/tmp/spark-deploy-lab"))


@dataclass(frozen=True)
class Machine:
    """A node (`a`, `b`, …), or the jump host, which has neither engine nor fabric."""

    key: str
    name: str
    namespace: str
    folder: Path
    address: str  # where one logs in
    fabric_ip: str  # "" on the jump host
    cgroup: str

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"


@dataclass(frozen=True)
class Topology:
    """One lab. Labs of different *id* run side by side with the same addresses."""

    id: str = "lab"
    size: int = 2

    @property
    def folder(self) -> Path:
        return STATE / "labs" / self.id

    @property
    def admin_namespace(self) -> str:
        return f"{self.id}-adm"

    @property
    def nodes(self) -> tuple[Machine, ...]:
        return tuple(
            self._machine(letter, f"spark-{letter}", f"10.99.1.{10 + rank}", f"192.168.200.{1 + rank}")
            for rank, letter in enumerate(LETTERS[: self.size])
        )

    @property
    def jump(self) -> Machine:
        return self._machine(JUMP, JUMP, "10.99.1.5", "")

    @property
    def machines(self) -> tuple[Machine, ...]:
        return (*self.nodes, self.jump)

    def machine(self, key: str) -> Machine:
        """
        The machine called *key*: `a` or `spark-a`.

        Raises:
            KeyError: there is none of that name.
        """
        return {name: machine for machine in self.machines for name in (machine.key, machine.name)}[key]

    @property
    def namespaces(self) -> tuple[str, ...]:
        return (self.admin_namespace, *(machine.namespace for machine in self.machines))

    def _machine(self, key: str, name: str, address: str, fabric_ip: str) -> Machine:
        return Machine(
            key=key,
            name=name,
            namespace=f"{self.id}-{key}",
            folder=self.folder / key,
            address=address,
            fabric_ip=fabric_ip,
            cgroup=f"spark-lab-{self.id}-{key}",
        )
