"""`spark-deploy trust`: the only thing that writes known_hosts."""

from __future__ import annotations

import contextlib
import os
import pty
import stat
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from paramiko import HostKeys

from orchestrator.cli.main import cli
from orchestrator.errors import Exit, SparkDeployError, UnreachableError, UsageError
from tests.remote.conftest import keygen, node, open_hosts, public

if TYPE_CHECKING:
    from tests.remote.conftest import Client, Sshd

INVENTORY = """\
name: home
head:
  name: red
  ssh: 127.0.0.1:{first}
  fabric: {{interface: enp1s0f1np1, ip: 192.168.200.1, hcas: [rocep1s0f1, roceP2p1s0f1]}}
workers:
- name: blue
  ssh: 127.0.0.1:{second}
  fabric: {{interface: enp1s0f1np1, ip: 192.168.200.2, hcas: [rocep1s0f1, roceP2p1s0f1]}}
api: {{bind: 127.0.0.1, port: 8000}}
"""


@pytest.fixture
def run(client: Client, monkeypatch: pytest.MonkeyPatch):
    """Call the command with the client's home, in an empty folder; `run.stderr` is what it said there."""
    monkeypatch.chdir(client.home)

    def call(*arguments: str) -> str:
        environ = {"HOME": str(client.home), "SSH_AUTH_SOCK": "", "SPARK_DEPLOY_INVENTORY": ""}
        result = CliRunner().invoke(cli, ["trust", *arguments], env=environ, standalone_mode=False)
        if result.exception:
            raise result.exception
        assert result.return_value == Exit.DONE
        call.stderr = result.stderr
        return result.stdout

    return call


def fails(run, *arguments: str) -> SparkDeployError:
    with pytest.raises(SparkDeployError) as caught:
        run(*arguments)
    return caught.value


def test_the_command_of_the_refusal_makes_the_host_known(run, client: Client, sshd: Sshd) -> None:
    """Copy, paste, go on."""
    client.configure(client.host("spark-1", sshd))
    with pytest.raises(UnreachableError) as caught:
        open_hosts([node("spark-1")], client.environment)
    command = (caught.value.hint or "").rpartition("spark-deploy trust ")[2].split()

    run(*command)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()
    assert stat.S_IMODE(client.known_hosts.stat().st_mode) == 0o600


def test_another_fingerprint_writes_nothing(run, client: Client, sshd: Sshd) -> None:
    client.configure(client.host("spark-1", sshd))

    error = fails(run, "spark-1", "--fingerprint", public(sshd.rsa_key).fingerprint)

    assert error.exit_code == Exit.UNREACHABLE
    assert error.found == f"ssh-ed25519 {public(sshd.key).fingerprint}"
    assert not client.known_hosts.exists()


def test_without_terminal_and_fingerprint_there_is_nobody_to_ask(run, client: Client, sshd: Sshd) -> None:
    """CI must not hang, and must not say yes."""
    client.configure(client.host("spark-1", sshd))

    error = fails(run, "spark-1")

    assert error.exit_code == Exit.USAGE
    assert f"spark-deploy trust spark-1 --fingerprint {public(sshd.key).fingerprint}" in (error.hint or "")
    assert not client.known_hosts.exists()


def test_a_known_host_is_said_to_be_known(run, trusting: Client, sshd: Sshd) -> None:
    before = trusting.known_hosts.read_bytes()

    shown = run("spark-1")

    assert (
        shown == f"spark-1 (127.0.0.1:{sshd.port}) is trusted: ssh-ed25519 {public(sshd.key).fingerprint}\n"
    )
    assert trusting.known_hosts.read_bytes() == before


def test_a_changed_key_takes_the_place_of_the_old_one(
    run, client: Client, sshd: Sshd, tmp_path: Path
) -> None:
    """The old line would make ssh itself refuse; the file as it was stays as .old."""
    client.configure(client.host("spark-1", sshd))
    client.know(sshd, public(keygen(tmp_path / "old")))
    client.know(sshd, public(keygen(tmp_path / "other")), name="other")
    before = client.known_hosts.read_text()

    run("spark-1", "--fingerprint", public(sshd.key).fingerprint)

    names = [line.split()[0] for line in client.known_hosts.read_text().splitlines()]
    assert names == ["other", f"[127.0.0.1]:{sshd.port}"]
    assert client.known_hosts.with_name("known_hosts.old").read_text() == before
    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_the_old_line_of_a_changed_key_may_be_hashed(run, client: Client, sshd: Sshd, tmp_path: Path) -> None:
    client.configure(client.host("spark-1", sshd, "HashKnownHosts yes"))
    client.know(sshd, public(keygen(tmp_path / "old")), name=HostKeys.hash_host(f"[127.0.0.1]:{sshd.port}"))

    run("spark-1", "--fingerprint", public(sshd.key).fingerprint)

    (line,) = client.known_hosts.read_text().splitlines()
    assert line.startswith("|1|")
    assert line.endswith(public(sshd.key).line)


def test_a_pattern_that_vouches_for_the_old_key_is_pointed_at(
    run, client: Client, sshd: Sshd, tmp_path: Path
) -> None:
    """Other hosts may live by it, so it is not ours to drop."""
    client.configure(client.host("spark-1", sshd))
    client.know(sshd, public(keygen(tmp_path / "old")), name="[127.0.0.*")
    client.known_hosts.write_text(client.known_hosts.read_text().replace("[127.0.0.*", "[127.0.0.*]:*"))

    run("spark-1", "--fingerprint", public(sshd.key).fingerprint)

    assert len(client.known_hosts.read_text().splitlines()) == 2
    assert f"{client.known_hosts}:1 still vouches for another key" in run.stderr


def test_every_hop_is_learnt_the_jump_host_first(run, client: Client, sshd: Sshd, jump: Sshd) -> None:
    """The host behind it can only be asked through a jump host that is trusted."""
    client.configure(client.host("spark-1", sshd, "ProxyJump gate") + client.host("gate", jump))
    known = [public(sshd.key).fingerprint, public(jump.key).fingerprint]

    shown = run("spark-1", "--fingerprint", known[0], "--fingerprint", known[1])

    assert [line.split()[0] for line in shown.splitlines()] == ["gate", "spark-1"]
    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_the_fingerprint_of_the_host_does_not_cover_its_jump_host(
    run, client: Client, sshd: Sshd, jump: Sshd
) -> None:
    client.configure(client.host("spark-1", sshd, "ProxyJump gate") + client.host("gate", jump))

    error = fails(run, "spark-1", "--fingerprint", public(sshd.key).fingerprint)

    assert error.message.startswith("jump host gate offers another key")
    assert not client.known_hosts.exists()


def test_a_file_that_ssh_config_takes_away_is_an_error(run, client: Client, sshd: Sshd) -> None:
    """UserKnownHostsFile /dev/null: people do that to silence ssh."""
    section = client.host("spark-1", sshd).replace(str(client.known_hosts), "/dev/null")
    client.configure(section)

    error = fails(run, "spark-1", "--fingerprint", public(sshd.key).fingerprint)

    assert isinstance(error, UsageError)


def test_a_file_that_cannot_be_written_is_named(run, client: Client, sshd: Sshd) -> None:
    client.configure(client.host("spark-1", sshd))
    client.known_hosts.mkdir()

    error = fails(run, "spark-1", "--fingerprint", public(sshd.key).fingerprint)

    assert (error.at, error.found) == (str(client.known_hosts), "Is a directory")


def test_what_is_no_fingerprint_is_refused(run) -> None:
    """MD5 fingerprints of old guides."""
    assert fails(run, "spark-1", "--fingerprint", "MD5:00:11").exit_code == Exit.USAGE


def test_without_a_host_there_must_be_an_inventory(run) -> None:
    assert fails(run).exit_code == Exit.USAGE


def test_a_host_that_does_not_answer_is_unreachable(run, client: Client, sshd: Sshd) -> None:
    client.configure(client.host("spark-1", sshd).replace(f"Port {sshd.port}", "Port 1"))

    error = fails(run, "spark-1")

    assert error.exit_code == Exit.UNREACHABLE
    assert error.found == "Connection refused"


def at_a_terminal(client: Client, answer: str, *arguments: str) -> tuple[int, str]:
    """Run the command at a terminal whose user answers its question."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "orchestrator", "trust", *arguments]
    environ = {**os.environ, "HOME": str(client.home), "PYTHONPATH": str(Path(__file__).parents[2])}
    environ.pop("SPARK_DEPLOY_INVENTORY", None)
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ, cwd=client.home)
    os.close(slave)
    said = b""
    with contextlib.suppress(OSError):  # the terminal's other end closes with the command
        while data := os.read(master, 4096):
            said += data
            if said.endswith(b"[y/N]: "):
                os.write(master, f"{answer}\n".encode())
    os.close(master)
    return process.wait(), said.decode()


def test_at_a_terminal_the_fingerprint_is_shown_and_asked_about(client: Client, sshd: Sshd) -> None:
    client.configure(client.host("spark-1", sshd))

    code, said = at_a_terminal(client, "y", "spark-1")

    assert code == Exit.DONE
    assert f"spark-1 (127.0.0.1:{sshd.port}) offers ssh-ed25519 {public(sshd.key).fingerprint}" in said
    assert client.known_hosts.read_text() == f"[127.0.0.1]:{sshd.port} {public(sshd.key).line}\n"


def test_a_no_writes_nothing(client: Client, sshd: Sshd) -> None:
    client.configure(client.host("spark-1", sshd))

    code, _ = at_a_terminal(client, "n", "spark-1")

    assert code == Exit.FAILED
    assert not client.known_hosts.exists()


def test_the_end_of_the_input_at_the_question_says_that_nothing_was_written(
    client: Client, sshd: Sshd
) -> None:
    """On a line of its own: it was `[y/N]: Aborted.`"""
    client.configure(client.host("spark-1", sshd))

    code, said = at_a_terminal(client, "\x04", "spark-1")

    assert code == Exit.INTERRUPTED
    assert said.endswith("\n\x1b[1;31mError:\x1b[0m interrupted: nothing was written for spark-1\r\n")


def test_before_a_known_key_is_replaced_both_are_shown(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    client.configure(client.host("spark-1", sshd))
    old = public(keygen(tmp_path / "old"))
    client.know(sshd, old)

    code, said = at_a_terminal(client, "y", "spark-1")

    assert code == Exit.DONE
    assert f"KNOWN as ssh-ed25519 {old.fingerprint}, {client.known_hosts}:1" in said
    assert "Replace the known key by this one?" in said


def test_the_nodes_of_an_inventory_are_trusted_by_name_or_all(
    run, client: Client, sshd: Sshd, jump: Sshd
) -> None:
    """`ssh:` may be written in any way; the node's name is enough."""
    client.configure(client.host("127.0.0.1", sshd))
    (client.home / "spark-deploy.yaml").write_text(INVENTORY.format(first=sshd.port, second=jump.port))
    fingerprints = [
        "--fingerprint",
        public(sshd.key).fingerprint,
        "--fingerprint",
        public(jump.key).fingerprint,
    ]

    run("red", *fingerprints)
    first = len(client.known_hosts.read_text().splitlines())
    run(*fingerprints)

    assert (first, len(client.known_hosts.read_text().splitlines())) == (1, 2)
