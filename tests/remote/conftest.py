"""Real OpenSSH servers on the loopback, each with its own keys, and clients with a home of their own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import threading
from dataclasses import dataclass
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from orchestrator.errors import one_or_many
from orchestrator.model.inventory import Fabric, Node, Paths
from orchestrator.remote.connect import Hosts, try_hosts
from orchestrator.remote.connection import USUAL, Limits
from orchestrator.remote.known_hosts import HostKey, parse_line
from orchestrator.remote.ssh_config import SshEnvironment

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/sbin")

if SSHD is None:
    collect_ignore_glob = [
        "test_*"
    ]  # `make test` installs openssh-server; without it there is nothing to talk to


def keygen(file: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    bits = ("-b", "2048") if kind == "rsa" else ()
    subprocess.run(
        ["ssh-keygen", "-q", "-t", kind, *bits, "-N", passphrase, "-C", file.name, "-f", file],
        check=True,
    )
    return file


def public(file: Path) -> HostKey:
    """The public half of a key file."""
    line = file.with_name(file.name + ".pub").read_text()
    entry = parse_line(f"name {line}", file, 1)
    assert entry is not None
    return entry.key


class Sshd:
    """One server; its log is at hand, and tests can wait for a line of it."""

    def __init__(
        self, folder: Path, authorized: Path, rsa_key: Path, options: str = "", sftp: str = "internal-sftp -d"
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir()
        self.key = keygen(folder / "host_ed25519")
        self.rsa_key = rsa_key
        self.log: list[str] = []
        self.said = threading.Condition()
        self.port = free_port()
        (folder / "sshd_config").write_text(
            f"{options}\nListenAddress 127.0.0.1:{self.port}\n"
            f"HostKey {self.key}\nHostKey {self.rsa_key}\nAuthorizedKeysFile {authorized}\n"
            f"PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\n"
            f"LogLevel VERBOSE\nSetEnv HOME={self.home}\nSubsystem sftp {sftp} {self.home}\n"
        )
        self.start()

    def start(self) -> None:
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # where sshd drops its privileges
        already = len(self.log)
        self.process = subprocess.Popen(
            [SSHD, "-D", "-e", "-f", self.folder / "sshd_config"], stderr=subprocess.PIPE, text=True
        )
        self.reader = threading.Thread(target=self._follow, args=(self.process,), daemon=True)
        self.reader.start()
        self.wait_for("Server listening", already)

    def _follow(self, process: subprocess.Popen[str]) -> None:
        with process.stderr as lines:
            for line in lines:
                with self.said:
                    self.log.append(line)
                    self.said.notify_all()
        with self.said:
            self.log.append("ended")
            self.said.notify_all()

    def wait_for(self, text: str, since: int = 0) -> None:
        with self.said:
            self.said.wait_for(lambda: any(text in line or line == "ended" for line in self.log[since:]), 20)
            assert any(text in line for line in self.log[since:]), self.log

    @property
    def logins(self) -> int:
        with self.said:
            return sum("Accepted publickey" in line for line in self.log)

    @property
    def sessions(self) -> list[int]:
        """Process ids of the connections that are open now."""
        found = subprocess.run(
            ["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True, check=False
        )
        return [int(word) for word in found.stdout.split()]

    def signal_sessions(self, number: signal.Signals) -> None:
        for pid in self.sessions:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(pid, number)

    def stop(self) -> None:
        self.signal_sessions(signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self.reader.join(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@dataclass
class Client:
    """A laptop: its home, its ssh_config, its keys."""

    home: Path
    key: Path
    agent: str = ""
    ssh: str | None = shutil.which("ssh")

    @property
    def known_hosts(self) -> Path:
        return self.home / ".ssh" / "known_hosts"

    @property
    def environment(self) -> SshEnvironment:
        return SshEnvironment(
            home=self.home,
            passwd_home=Path("/nowhere"),
            user="somebody",
            agent=self.agent,
            ssh=self.ssh,
        )

    def configure(self, text: str) -> None:
        (self.home / ".ssh" / "config").write_text(text)

    def host(self, name: str, sshd: Sshd, *options: str) -> str:
        """A Host section of ssh_config."""
        lines = (
            *("HostName 127.0.0.1", f"Port {sshd.port}", f"User {whoami()}", f"IdentityFile {self.key}"),
            *(f"UserKnownHostsFile {self.known_hosts}", "GlobalKnownHostsFile /dev/null"),
        )
        return f"Host {name}\n" + "".join(f"  {line}\n" for line in (*options, *lines))

    def trust(self, sshd: Sshd) -> None:
        """Have *sshd* be `spark-1`, with its key known."""
        self.configure(self.host("spark-1", sshd))
        self.know(sshd)

    def know(self, sshd: Sshd, key: HostKey | None = None, name: str = "") -> None:
        with self.known_hosts.open("a") as file:
            file.write(f"{name or f'[127.0.0.1]:{sshd.port}'} {(key or public(sshd.key)).line}\n")


def open_hosts(nodes: list[Node], environment: SshEnvironment, limits: Limits = USUAL) -> Hosts:
    """Connect to all of *nodes*, or raise why not."""
    hosts, errors = try_hosts(nodes, environment, limits)
    if errors:
        hosts.close()
        raise one_or_many(errors)
    return hosts


def whoami() -> str:
    return subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()


def node(name: str, ssh: str = "", rank: int = 0) -> Node:
    fabric = Fabric("lo", IPv4Interface(f"127.0.0.{rank + 1}/24"), ())
    return Node(name=name, rank=rank, ssh=ssh or name, fabric=fabric, paths=Paths())


@pytest.fixture(scope="session")
def client_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return keygen(tmp_path_factory.mktemp("keys") / "id_ed25519")


@pytest.fixture(scope="session")
def rsa_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One for all servers: it takes a second to make."""
    return keygen(tmp_path_factory.mktemp("keys") / "host_rsa", "rsa")


@pytest.fixture(scope="session")
def make_sshd(tmp_path_factory: pytest.TempPathFactory, client_key: Path, rsa_key: Path):
    """Give a function that starts a server: OPTIONS of sshd_config, sftp=PROGRAM."""
    started: list[Sshd] = []

    def make(options: str = "", **changes: str) -> Sshd:
        folder = tmp_path_factory.mktemp("sshd") / "server"
        sshd = Sshd(folder, client_key.with_name(client_key.name + ".pub"), rsa_key, options, **changes)
        started.append(sshd)
        return sshd

    yield make
    for sshd in started:
        sshd.stop()


@pytest.fixture(scope="session")
def sshd(make_sshd) -> Sshd:
    return make_sshd()


@pytest.fixture(scope="session")
def jump(make_sshd) -> Sshd:
    return make_sshd()


@pytest.fixture
def client(tmp_path: Path, client_key: Path) -> Client:
    (tmp_path / "home" / ".ssh").mkdir(parents=True)
    return Client(tmp_path / "home", client_key)


@pytest.fixture
def trusting(client: Client, sshd: Sshd) -> Client:
    """A client that knows the host `spark-1`."""
    client.trust(sshd)
    return client


@pytest.fixture
def host(trusting: Client):
    """An open connection to `spark-1`."""
    with open_hosts([node("spark-1")], trusting.environment) as hosts:
        yield hosts["spark-1"]
