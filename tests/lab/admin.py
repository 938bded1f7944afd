"""The admin's laptop: a home of its own in the admin's network namespace, from which spark-deploy runs."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import network
from .shell import LabError, run, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .lab import Lab

# Hosts of the lab: `spark-a` logs in as op; `spark-a-root`, `spark-a-nodocker` as those users; `spark-a-jump` by the jump host.
SSH_CONFIG = "Include conf.d/*.conf\n"
ALIASES = """\
Host {name}-root
  HostName {address}
  User root
Host {name}-nodocker
  HostName {address}
  User nodocker
Host {name}-jump
  HostName {address}
  ProxyJump jump
Host {name}
  HostName {address}
"""
DEFAULTS = """\
Host spark-* jump
  User op
  IdentityFile ~/.ssh/id_lab
  IdentitiesOnly yes
  UserKnownHostsFile ~/.ssh/known_hosts_lab
"""
# OpenSSH takes the home from the password database, not from $HOME: this process gets a database of its own.
WITH_PASSWD = 'mount --bind "$0" /etc/passwd && exec "$@"'


@dataclass(frozen=True)
class AdminHome:
    """*home* holds keys, known hosts, inventories and everything spark-deploy writes."""

    lab: Lab
    home: Path

    # --- the home ---------------------------------------------------------------------------------

    def create(self) -> AdminHome:
        config = self.ssh / "conf.d/lab.conf"
        config.parent.mkdir(parents=True)
        self.ssh.chmod(0o700)
        (self.ssh / "config").write_text(SSH_CONFIG)
        aliases = [ALIASES.format(name=m.name, address=m.address) for m in self.lab.topology.machines]
        config.write_text("".join(aliases) + DEFAULTS)
        shutil.copy(self.lab.topology.folder / "id", self.ssh / "id_lab")
        (self.ssh / "id_lab").chmod(0o600)
        self.trust(*(machine.key for machine in self.lab.topology.machines))
        (self.home / "passwd").write_text(self._passwd())
        return self

    def _passwd(self) -> str:
        others = [
            line for line in Path("/etc/passwd").read_text().splitlines() if not line.startswith("root:")
        ]
        return "\n".join([f"root:x:0:0:root:{self.home}:/bin/bash", *others]) + "\n"

    @property
    def ssh(self) -> Path:
        return self.home / ".ssh"

    @property
    def known_hosts(self) -> Path:
        return self.ssh / "known_hosts_lab"

    def trust(self, *keys: str) -> None:
        """known_hosts holds the right keys of these machines, and no others."""
        lines = [f"{self.lab.node(key).address} {self.host_key(key)}\n" for key in keys]
        self.known_hosts.write_text("".join(lines))

    def host_key(self, key: str) -> str:
        """A machine's public host key: type and base64."""
        return " ".join((self.lab.node(key).folder / "hostkey.pub").read_text().split()[:2])

    def fingerprint(self, key: str) -> str:
        """SHA256:… of a machine's host key."""
        return run(["ssh-keygen", "-lf", self.lab.node(key).folder / "hostkey.pub"]).split()[1]

    def mistake_host_key(self, key: str) -> None:
        """known_hosts holds another key for this machine than it shows: as after a re-installation, or an attack."""
        right, wrong = self.host_key(key), (self.lab.topology.folder / "id.pub").read_text().split()[1]
        self.known_hosts.write_text(self.known_hosts.read_text().replace(right, f"ssh-ed25519 {wrong}"))

    # --- running things -----------------------------------------------------------------------------

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Nothing of the caller's environment but PATH."""
        return {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_STATE_HOME": str(self.home / ".local/state"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            **(extra or {}),
        }

    def command(self, words: Sequence[str | Path]) -> list[str]:
        """*words* in the admin's namespace, with this home in the password database; stays one process."""
        enter = network.inside(self.lab.topology.admin_namespace)
        shell = ["unshare", "--mount", "sh", "-c", WITH_PASSWD, str(self.home / "passwd")]
        return [*enter, *shell, *(str(word) for word in words)]

    def run(
        self,
        *words: str | Path,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002  # as subprocess.run calls it
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        """*words* on the admin's laptop, whatever the exit code; no terminal, standard input empty unless given."""
        return subprocess.run(
            self.command(words),
            env=self.environment(env),
            cwd=self.home,
            input=input or "",
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    def spark_deploy(
        self,
        *arguments: str | Path,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002
        timeout_s: float = 120,
    ) -> subprocess.CompletedProcess[str]:
        return self.run(*spark_deploy_program(), *arguments, env=env, input=input, timeout_s=timeout_s)

    @contextlib.contextmanager
    def background(self, *words: str | Path, env: Mapping[str, str] | None = None) -> Iterator[Background]:
        """*words* while the block runs; killed at its end if still there."""
        with (self.home / "stdout").open("w") as stdout, (self.home / "stderr").open("w") as stderr:
            process = subprocess.Popen(
                # a shell that runs us in the background makes us ignore SIGINT, and children inherit that
                self.command(["env", "--default-signal=INT", *words]),
                env=self.environment(env),
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            with process:
                try:
                    yield Background(process, Path(stdout.name), Path(stderr.name))
                finally:
                    process.kill()

    def background_spark_deploy(
        self, *arguments: str | Path, env: Mapping[str, str] | None = None
    ) -> contextlib.AbstractContextManager[Background]:
        return self.background(*spark_deploy_program(), *arguments, env=env)

    def up_until(self, text: str, *arguments: str, sent: int = signal.SIGINT) -> Background:
        """An `up` that is *sent* a signal (Ctrl-C, unless said otherwise) as soon as it says *text*; it has ended."""
        with self.background_spark_deploy("up", *arguments) as up:
            up.wait_for_text(text)
            up.process.send_signal(sent)
            up.wait()
        return up


def spark_deploy_program() -> list[str]:
    """$SPARK_DEPLOY_BIN (an installed wheel), else this interpreter's own."""
    if binary := os.environ.get("SPARK_DEPLOY_BIN"):
        return [binary]
    return [sys.executable, "-m", "orchestrator"]


@dataclass(frozen=True)
class Background:
    process: subprocess.Popen[bytes]
    stdout_file: Path
    stderr_file: Path

    @property
    def stdout(self) -> str:
        return self.stdout_file.read_text()

    @property
    def stderr(self) -> str:
        return self.stderr_file.read_text()

    def wait_for_text(self, text: str, timeout_s: float = 60) -> None:
        """
        Return when *text* stands in either output.

        Raises:
            AssertionError: the program ended or the time ran out before; shows both outputs.
        """

        def seen() -> bool:
            return text in self.stdout + self.stderr

        with contextlib.suppress(LabError):
            wait_for(text, lambda: seen() or self.process.poll() is not None, timeout_s=timeout_s)
        if not seen():
            state = self.process.poll()
            raise AssertionError(f"exit code {state}, and no {text!r} in:\n{self.stdout}{self.stderr}")

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def wait(self, timeout_s: float = 60) -> int:
        """The exit code."""
        return self.process.wait(timeout_s)

    @property
    def returncode(self) -> int:
        """The exit code of a program that has ended, as of one that was not in the background."""
        return self.process.returncode
