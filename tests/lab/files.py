"""What lies on a machine: accounts, keys, sshd's settings, the fake sysfs, a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .shell import run
from .topology import HCAS, Machine, Topology

if TYPE_CHECKING:
    from collections.abc import Iterable

HERE = Path(__file__).parent
USERS = {"op": 2001, "nodocker": 2002}  # op is in the group docker
MODEL = "/srv/models/stub"  # on every node
HUB_MODEL = "lab/stub-7b"  # in op's and root's Hugging Face cache
HUB_REVISION = "0123456789abcdef0123456789abcdef01234567"
SHARDS = 7
SSHD = """\
Port 22
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin yes
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
UseDNS no
PrintMotd no
MaxSessions 30
MaxStartups 100:30:200
LogLevel INFO
PidFile /run/sshd.pid
Subsystem sftp internal-sftp
"""


def make_key(path: Path, comment: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", path])


def prepare(topology: Topology, machine: Machine) -> None:
    """A machine as it comes out of its box: keys and engine data stay, all else is new."""
    # docker/containers: else the engine would start again what an earlier lab left behind
    for folder in ("disk", "files", "docker/containers"):
        shutil.rmtree(machine.folder / folder, ignore_errors=True)
    (machine.folder / "docker").mkdir(parents=True, exist_ok=True)
    make_key(machine.folder / "hostkey", machine.name)
    _lay_over(topology, machine, machine.folder / "files")
    _fill_disk(topology, machine, machine.folder / "disk")


def _lay_over(topology: Topology, machine: Machine, files: Path) -> None:
    shutil.copytree(HERE / "overlay", files, symlinks=True)
    _write(files / "etc/ssh/ssh_host_ed25519_key", (machine.folder / "hostkey").read_text(), 0o600)
    _write(files / "etc/ssh/ssh_host_ed25519_key.pub", (machine.folder / "hostkey.pub").read_text())
    _write(files / "etc/ssh/sshd_config", SSHD)
    _write(files / "etc/hostname", machine.name + "\n")
    _write(files / "etc/hosts", hosts(topology))
    for name, text in accounts(Path("/etc")).items():
        _write(files / "etc" / name, text, 0o640 if name == "shadow" else 0o644)
    _write(files / "lab/start.sh", (HERE / "node/start.sh").read_text(), 0o755)
    if machine.fabric_ip:
        _node_files(machine, files)


def _node_files(machine: Machine, files: Path) -> None:
    _write(files / "lab/cgroup", machine.cgroup)
    shutil.copytree(HERE / "plugin", files / "lab/plugin")
    for path, text in infiniband(machine.fabric_ip).items():
        _write(files / "lab/sys-class/infiniband" / path, text + "\n")


def hosts(topology: Topology) -> str:
    lines = ["127.0.0.1 localhost", *(f"{machine.address} {machine.name}" for machine in topology.machines)]
    return "\n".join(lines) + "\n"


def accounts(etc: Path) -> dict[str, str]:
    """This machine's passwd, shadow and group with the lab's users in them, `op` in the group docker."""
    tables = {name: _lines_without(etc / name, USERS) for name in ("passwd", "shadow", "group")}
    for user, uid in USERS.items():
        tables["passwd"].append(f"{user}:x:{uid}:{uid}::/home/{user}:/bin/bash")
        tables["shadow"].append(f"{user}:*:19000:0:99999:7:::")  # `*` and not `!`: sshd calls that one locked
        tables["group"].append(f"{user}:x:{uid}:")
    tables["group"] = [_with_docker_member(line) for line in tables["group"]]
    if not any(line.startswith("docker:") for line in tables["group"]):
        tables["group"].append("docker:x:2000:op")
    return {name: "\n".join(lines) + "\n" for name, lines in tables.items()}


def _lines_without(table: Path, names: Iterable[str]) -> list[str]:
    return [line for line in table.read_text().splitlines() if line.split(":")[0] not in names]


def _with_docker_member(line: str) -> str:
    name, password, gid, _ = line.split(":", 3)
    return f"{name}:{password}:{gid}:op" if name == "docker" else line


def infiniband(fabric_ip: str) -> dict[str, str]:
    """Files of /sys/class/infiniband: both HCAs of the port, RoCE v2 at index 3 as on a Spark."""
    octets = [int(part) for part in fabric_ip.split(".")]
    gid = "0000:0000:0000:0000:0000:ffff:{:02x}{:02x}:{:02x}{:02x}".format(*octets)
    port = {
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "200 Gb/sec (4X HDR)",
        "link_layer": "Ethernet",
        "gids/3": gid,
        "gid_attrs/types/3": "RoCE v2",
    }
    tree = {f"{hca}/ports/1/{name}": text for hca in HCAS for name, text in port.items()}
    tree |= {f"{hca}/ports/1/gid_attrs/ndevs/3": device for hca, device in HCAS.items()}
    kinds = [f"{hca}/device/net/{device}/type" for hca, device in HCAS.items()]
    return tree | dict.fromkeys(kinds, "1")  # ARPHRD_ETHER


def stub_model() -> dict[str, str]:
    """A checkpoint that only the stub engine can load."""
    config = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "num_hidden_layers": 2}
    shards = [f"model-{number:05}-of-{SHARDS:05}.safetensors" for number in range(1, SHARDS + 1)]
    return {"config.json": json.dumps(config, indent=1) + "\n", **dict.fromkeys(shards, "0" * 4096)}


def restore_models(machine: Machine, root: Path) -> None:
    """The stub's model is complete on the node whose root is *root*: as a folder, and in both users' caches."""
    if not machine.fabric_ip:
        return
    for path, text in stub_model().items():
        _write(root / MODEL.lstrip("/") / path, text)
    for home, uid in ((root / "home/op", USERS["op"]), (root / "root", 0)):
        shutil.rmtree(home / ".cache", ignore_errors=True)
        _hub_cache(home / ".cache/huggingface/hub")
        _own(home / ".cache", uid)


def _fill_disk(topology: Topology, machine: Machine, disk: Path) -> None:
    (disk / "log").mkdir(parents=True)
    (disk / "srv").mkdir()
    public = (topology.folder / "id.pub").read_text()
    for home, uid in ((disk / "root", 0), *((disk / "home" / user, uid) for user, uid in USERS.items())):
        home.mkdir(parents=True, mode=0o750)
        _write(home / ".ssh/authorized_keys", public, 0o600)
        (home / ".ssh").chmod(0o700)
        _own(home, uid)


def _hub_cache(hub: Path) -> None:
    """The stub model as `hf download` leaves one: blobs, and a snapshot of links to them."""
    repository = hub / ("models--" + HUB_MODEL.replace("/", "--"))
    _write(repository / "refs/main", HUB_REVISION)
    for number, (path, text) in enumerate(stub_model().items()):
        _write(repository / f"blobs/{number:040x}", text)
        link = repository / "snapshots" / HUB_REVISION / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../blobs/{number:040x}")


def _own(folder: Path, uid: int) -> None:
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, uid, uid) if not path.is_symlink() else None


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
