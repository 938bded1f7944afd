"""The lab as a whole: what the command line and the tests use."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from . import files, images, machine, network
from .shell import run, wait_for
from .topology import JUMP, LETTERS, Machine, Topology

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

# What deployments leave on a node, for both users that deploy.
STATE_FOLDERS = "/home/op/.spark-deploy /root/.spark-deploy"
CACHE_FOLDERS = "/home/op/.cache/spark-deploy /root/.cache/spark-deploy"
CLEAN = f"""
pkill -KILL -u op,nodocker
pkill -KILL -f '^sshd: [a-z]+@'
rm -rf {STATE_FOLDERS} {CACHE_FOLDERS} /tmp/* /tmp/.[!.]*
rm -f /run/dockerd-pause
for home in /home/op /root; do find "$home" -mindepth 1 -maxdepth 1 ! -name .ssh ! -name .cache -exec rm -rf {{}} +; done
iptables -w -F
true
"""
LEFTOVERS = f"find {STATE_FOLDERS} /tmp /dev/shm -mindepth 1 ! -type d 2>/dev/null || true"
AT_REST = (
    "/bin/bash /lab/start.sh",
    "sleep infinity",
    "dockerd ",
    "containerd ",
    "sshd: ",
    "/usr/sbin/sshd",
    "ps ",
    "env -i",
)


@dataclass(frozen=True)
class Lab:
    """Nodes `a`, `b`, …, a jump host and an admin's namespace. Every method names a node by its letter."""

    topology: Topology = field(default_factory=Topology)

    def up(self, *, real_engine: bool = False) -> None:
        """All machines new and booted, both images in every engine. Whatever ran under this id before is gone."""
        self.down()
        files.make_key(self.topology.folder / "id", "spark-lab")
        network.create(self.topology)
        self._all(self._first_boot)
        network.wait_for_carrier(self.topology.nodes)
        self.load_images([images.STUB, images.REAL] if real_engine else [images.STUB])

    def down(self) -> None:
        """Nothing is left but the engines' data, the keys and the image cache."""
        whole = replace(self.topology, size=len(LETTERS))  # a lab of that id may have been larger
        self._each(images.try_remove_containers, self.topology.nodes)
        self._each(machine.power_off, whole.machines)
        for namespace in whole.namespaces:
            network.kill_processes(namespace)
        network.remove(whole)
        for one in whole.machines:
            machine.remove_cgroups(one)
            for folder in ("files", "disk", "root"):
                shutil.rmtree(one.folder / folder, ignore_errors=True)

    def load_images(self, wanted: Sequence[images.Image]) -> None:
        tars = [(image, images.build(image)) for image in wanted]
        jobs = [(node, image, tar) for node in self.topology.nodes for image, tar in tars]
        self._each(lambda job: images.load(*job), jobs)

    # --- one node ---------------------------------------------------------------------------------

    def node(self, key: str) -> Machine:
        return self.topology.machine(key)

    def run(self, key: str, *command: str, stdin: bytes = b"", timeout_s: float = 60) -> str:
        """Standard output of *command*, run as root on the node without SSH; LabError when it fails."""
        return run(machine.command_in(self.node(key), command), stdin=stdin, timeout_s=timeout_s)

    def try_run(self, key: str, *command: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
        """As run(), whatever the exit code."""
        words = machine.command_in(self.node(key), command)
        return subprocess.run(words, capture_output=True, text=True, timeout=timeout_s, check=False)

    def docker(self, key: str, *arguments: str, timeout_s: float = 60) -> str:
        return self.run(key, "docker", *arguments, timeout_s=timeout_s).strip()

    def containers(self, key: str) -> list[str]:
        """Names of all containers of the node, stopped ones too."""
        return self.docker(key, "ps", "--all", "--format", "{{.Names}}").split()

    def inspect(self, key: str, container: str) -> dict[str, object]:
        return json.loads(self.docker(key, "inspect", container))[0]  # type: ignore[no-any-return]

    def processes(self, key: str, pattern: str = ".") -> list[int]:
        """Host's pids of the node's processes whose command line holds *pattern* (a regular expression)."""
        namespace = self.node(key).namespace
        found = {str(pid) for pid in network.processes(namespace)}
        listed = subprocess.run(["pgrep", "-f", pattern], capture_output=True, text=True, check=False)
        return [int(pid) for pid in listed.stdout.split() if pid in found]

    def pid(self, key: str) -> int:
        """PID 1 of the node, as the host counts; 0 when its power is off."""
        return machine.pid(self.node(key))

    def boot_id(self, key: str) -> str:
        return (self.node(key).folder / "boot_id").read_text().strip()

    def path(self, key: str, path: str) -> Path:
        """A node's file, from the outside; only while its power is on."""
        return machine.outside_path(self.node(key), path)

    def sshd_log(self, key: str) -> str:
        """Of this boot."""
        return (self.node(key).folder / "disk/log/sshd.log").read_text(errors="replace")

    def logins(self, key: str, user: str = "") -> int:
        """How often somebody (or *user*) logged in by SSH since the node booted."""
        return self.sshd_log(key).count(f"Accepted publickey for {user}")

    # --- faults -----------------------------------------------------------------------------------

    def power_cut(self, key: str) -> None:
        """The node is gone without a word: its cables fall silent before its processes die."""
        node = self.node(key)
        self._cables(node, up=False)
        machine.power_off(node)

    def boot(self, key: str) -> None:
        """The node is up again with its disk: homes, containers, images; without /tmp and /run."""
        node = self.node(key)
        self._cables(node, up=True)
        self._boot(node)

    def _cables(self, node: Machine, *, up: bool) -> None:
        if node.fabric_ip:
            network.set_fabric(node, up=up)
        network.set_management(self.topology, node, up=up)

    def fabric(self, *, up: bool, key: str = "a") -> None:
        """Plug or pull the fabric cable at node *key*."""
        network.set_fabric(self.node(key), up=up)

    def management(self, key: str, *, up: bool) -> None:
        """Plug or pull the node's management cable."""
        network.set_management(self.topology, self.node(key), up=up)

    @contextlib.contextmanager
    def only_by_jump(self, key: str) -> Iterator[None]:
        """The admin has no route to the node but through the jump host."""
        network.set_direct_route(self.topology, self.node(key), up=False)
        try:
            yield
        finally:
            network.set_direct_route(self.topology, self.node(key), up=True)

    def kill(self, key: str, pattern: str, number: int = signal.SIGKILL) -> None:
        """Signal the node's processes whose command line holds *pattern*; AssertionError where there is none."""
        pids = self.processes(key, pattern)
        assert pids, f"no process {pattern} on {key}"
        for pid in pids:
            os.kill(pid, number)

    def restart_engine(self, key: str, signal_name: str = "KILL", *, down_s: float = 2) -> None:
        """End the node's dockerd and return when a new one, begun *down_s* later as by its unit, answers."""
        before = self._end_engine(key, signal_name, down_s=down_s)
        wait_for("a new dockerd", lambda: self._engine_pid(key) not in ("", before), timeout_s=30)
        self._wait_for_engine(self.node(key))

    @contextlib.contextmanager
    def stopped_engine(self, key: str) -> Iterator[None]:
        """The node has no dockerd while the block runs."""
        self._end_engine(key, "KILL", down_s=600)
        try:
            yield
        finally:
            self.run(key, "pkill", "-f", "^sleep 600")
            self._wait_for_engine(self.node(key))

    def _end_engine(self, key: str, signal_name: str, *, down_s: float) -> str:
        """PID of the dockerd that was ended, or is about to."""
        pid = self._engine_pid(key)
        self.run(key, "sh", "-c", f"echo {down_s} >/run/dockerd-pause; kill -{signal_name} {pid}")
        return pid

    def _engine_pid(self, key: str) -> str:
        return self.try_run(key, "cat", "/run/docker.pid").stdout.strip()

    def _wait_for_engine(self, node: Machine) -> None:
        wait_for(f"dockerd on {node.name}", lambda: machine.engine_answers(node), timeout_s=30)

    # --- the admin --------------------------------------------------------------------------------

    def ssh_command(self, key: str, words: Sequence[str], user: str = "op") -> list[str]:
        """OpenSSH from the admin's namespace; the host key is not looked at."""
        node = self.node(key)
        options = (
            "-q -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o IdentitiesOnly=yes"
        )
        login = ["ssh", *options.split(), "-i", str(self.topology.folder / "id"), f"{user}@{node.address}"]
        return [*network.inside(self.topology.admin_namespace), *login, *words]

    def ssh(
        self, key: str, command: str, user: str = "op", timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """*command* on the node by SSH, whatever the exit code."""
        words = self.ssh_command(key, [command], user)
        return subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=False
        )

    def adm(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002  # as subprocess.run calls it
        timeout_s: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """*command* in the admin's namespace, whatever the exit code."""
        words = [*network.inside(self.topology.admin_namespace), *(str(word) for word in command)]
        return subprocess.run(
            words, env=env, input=input or "", capture_output=True, text=True, timeout=timeout_s, check=False
        )

    # --- counters ---------------------------------------------------------------------------------

    def fabric_bytes(self, key: str) -> int:
        return network.fabric_bytes(self.node(key))

    def count_management_packets(self) -> None:
        """Begin to count packets between the nodes' management addresses."""
        for node in self.topology.nodes:
            network.count_packets(node, [peer for peer in self.topology.nodes if peer != node])

    def management_packets(self) -> int:
        """Packets between the nodes' management addresses since count_management_packets()."""
        return sum(network.counted_packets(node) for node in self.topology.nodes)

    # --- between two tests --------------------------------------------------------------------------

    def clean(self) -> None:
        """As after up(), at the cost of 0.2 s: nothing runs, nothing is left of a deployment, all cables are in."""
        network.kill_processes(self.topology.admin_namespace)
        self._each(self._clean, self.topology.nodes)
        if not machine.pid(self.topology.jump):
            self.boot(JUMP)
        self._all(lambda one: network.set_management(self.topology, one, up=True))
        network.wait_for_carrier(self.topology.nodes)

    def _clean(self, node: Machine) -> None:
        if not machine.pid(node):
            self.boot(node.key)
        network.set_fabric(node, up=True)
        self._wait_for_engine(node)
        images.remove_containers(node)
        self.run(node.key, "sh", "-c", CLEAN)
        files.restore_models(node, self.path(node.key, "/"))

    def leftovers(self, key: str) -> list[str]:
        """What a deployment left on a node: containers, processes, files outside the caches; empty after a `down`."""
        containers = [f"container {name}" for name in self.containers(key)]
        kept = self.run(key, "sh", "-c", LEFTOVERS).splitlines()
        return [*containers, *kept, *self.foreign_processes(key)]

    def foreign_processes(self, key: str) -> list[str]:
        """Command lines of processes that do not belong to a node at rest."""
        lines = self.run(key, "ps", "-e", "-o", "args").splitlines()[1:]
        return [line for line in lines if not line.startswith(AT_REST)]

    # --- several machines at once -------------------------------------------------------------------

    def _first_boot(self, one: Machine) -> None:
        files.prepare(self.topology, one)
        self._boot(one)
        if one.fabric_ip:
            images.remove_containers(one)

    def _boot(self, one: Machine) -> None:
        machine.power_on(one, images.binds())
        machine.wait_until_booted(one)
        files.restore_models(one, machine.outside_path(one, "/"))

    def _all(self, action: Callable[[Machine], None]) -> None:
        self._each(action, self.topology.machines)

    @staticmethod
    def _each(action: Callable[..., None], items: Sequence[object]) -> None:
        with ThreadPoolExecutor(max_workers=len(items) or 1) as pool:
            list(pool.map(action, items))
