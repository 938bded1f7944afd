"""Who we are on the node: keys of files and agents, and nothing that asks."""

from __future__ import annotations

import base64
import os
import subprocess
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import UnreachableError
from orchestrator.remote.login import encrypted
from tests.remote.conftest import keygen, node, open_hosts, whoami

if TYPE_CHECKING:
    from pathlib import Path

    from tests.remote.conftest import Client, Sshd


@pytest.fixture
def locked(tmp_path: Path, client_key: Path) -> Path:
    """The client's key, with a passphrase."""
    key = tmp_path / "id_locked"
    for end in ("", ".pub"):
        (tmp_path / f"id_locked{end}").write_bytes(client_key.with_name(client_key.name + end).read_bytes())
    key.chmod(0o600)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", "secret", "-f", key], check=True, capture_output=True
    )
    return key


@pytest.fixture
def agent(tmp_path: Path, client_key: Path):
    """An agent that holds the client's key."""
    path = tmp_path / "agent"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.PIPE)
    process.stdout.readline()  # it says where it listens, once it does
    subprocess.run(["ssh-add", "-q", client_key], env={**os.environ, "SSH_AUTH_SOCK": str(path)}, check=True)
    yield str(path)
    process.kill()
    process.communicate()


def section(client: Client, sshd: Sshd, key: Path, *options: str) -> str:
    return client.host("spark-1", sshd, *options).replace(f"IdentityFile {client.key}", f"IdentityFile {key}")


def refusal(client: Client) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        open_hosts([node("spark-1")], client.environment)
    return caught.value


def test_a_key_with_a_passphrase_is_an_error_not_a_prompt(client: Client, sshd: Sshd, locked: Path) -> None:
    """`up` runs from cron and CI as well."""
    client.configure(section(client, sshd, locked))
    client.know(sshd)

    error = refusal(client)

    assert error.message == f"{whoami()}@spark-1 is not let in"
    assert error.at == f"spark-1 (127.0.0.1:{sshd.port})"
    assert error.found == f"{locked}: has a passphrase"
    assert error.hint == f"ssh-add {locked}  (an agent must run: eval $(ssh-agent))"


def test_the_agent_opens_what_a_passphrase_closes(
    client: Client, sshd: Sshd, locked: Path, agent: str
) -> None:
    client.configure(section(client, sshd, locked, "IdentitiesOnly yes"))
    client.know(sshd)
    client.agent = agent

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_identities_only_keeps_other_keys_of_the_agent_back(
    client: Client, sshd: Sshd, agent: str, tmp_path: Path
) -> None:
    """Five foreign keys of an agent are five failures, and the sixth login is refused by sshd."""
    stranger = keygen(tmp_path / "stranger")
    client.configure(section(client, sshd, stranger, "IdentitiesOnly yes"))
    client.know(sshd)
    client.agent = agent

    assert refusal(client).found == f"{stranger}: refused"


def test_an_identity_agent_of_ssh_config_is_used(
    client: Client, sshd: Sshd, agent: str, tmp_path: Path
) -> None:
    """Password managers bring their own agent."""
    client.configure(section(client, sshd, tmp_path / "none", f"IdentityAgent {agent}"))
    client.know(sshd)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_a_refused_key_is_named(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    stranger = keygen(tmp_path / "stranger")
    client.configure(section(client, sshd, stranger))
    client.know(sshd)

    error = refusal(client)

    assert error.found == f"{stranger}: refused"
    assert error.hint == "ssh-copy-id spark-1"


def test_without_any_key_the_files_that_we_looked_for_are_named(
    client: Client, sshd: Sshd, tmp_path: Path
) -> None:
    client.configure(section(client, sshd, tmp_path / "none"))
    client.know(sshd)

    assert refusal(client).found == f"no key: no agent, and none of {tmp_path / 'none'}"


def test_without_any_key_the_first_thing_to_do_is_to_make_one(
    client: Client, sshd: Sshd, tmp_path: Path
) -> None:
    """ssh-copy-id alone has nothing to copy; or the key has a name that ssh does not try."""
    client.configure(section(client, sshd, tmp_path / "none"))
    client.know(sshd)

    assert refusal(client).hint == (
        "ssh-keygen -t ed25519, then ssh-copy-id spark-1; "
        "or, if the key has another name, `IdentityFile …` in ~/.ssh/config"
    )


def test_a_file_that_is_no_key_is_named(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    (tmp_path / "odd").write_text("not a key")
    client.configure(section(client, sshd, tmp_path / "odd"))
    client.know(sshd)

    assert refusal(client).found == f"{tmp_path / 'odd'}: not a key that paramiko can use"


def token_key(file: Path) -> Path:
    """A key file as `ssh-keygen -t ed25519-sk -O no-touch-required` writes it, for a token that nobody has."""

    def string(content: bytes) -> bytes:
        return len(content).to_bytes(4, "big") + content

    public = string(b"sk-ssh-ed25519@openssh.com") + string(b"p" * 32) + string(b"ssh:")
    private = b"same" * 2 + public + b"\0" + string(b"h" * 64) + string(b"") + string(b"me")
    private += bytes(range(1, 1 - len(private) % -8))
    parts = (b"none", b"none", b"")
    key = b"openssh-key-v1\0" + b"".join(map(string, parts)) + b"\0\0\0\1" + string(public) + string(private)
    text = base64.encodebytes(key).decode()
    file.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{text}-----END OPENSSH PRIVATE KEY-----\n")
    return file


def test_the_key_of_a_token_locks_nobody_out(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    """`~/.ssh/id_ecdsa_sk` comes before id_ed25519 in ssh's own list; it was a traceback."""
    token = token_key(tmp_path / "id_ecdsa_sk")
    client.configure(section(client, sshd, token) + f"  IdentityFile {client.key}\n")
    client.know(sshd)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_the_key_of_a_token_needs_an_agent(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    token = token_key(tmp_path / "id_ed25519_sk")
    client.configure(section(client, sshd, token))
    client.know(sshd)

    error = refusal(client)

    assert error.found == f"{token}: only an agent can use it"
    assert error.hint == f"ssh-add {token}  (an agent must run: eval $(ssh-agent))"


def test_an_agent_with_too_many_keys_is_explained(
    client: Client, sshd: Sshd, agent: str, tmp_path: Path
) -> None:
    """sshd hangs up after six; the right key would have been the eighth."""
    strangers = [keygen(tmp_path / f"stranger-{number}") for number in range(7)]
    environ = {**os.environ, "SSH_AUTH_SOCK": agent}
    subprocess.run(["ssh-add", "-q", "-D"], env=environ, check=True)
    subprocess.run(["ssh-add", "-q", *strangers], env=environ, check=True)
    client.configure(section(client, sshd, client.key))
    client.know(sshd)
    client.agent = agent

    error = refusal(client)

    assert (error.found or "").endswith("then the server hung up")
    assert error.hint == "name the right key in ssh_config: `IdentityFile …` and `IdentitiesOnly yes`"


def test_a_server_that_wants_a_second_factor_is_named(make_sshd, client: Client) -> None:
    """Nobody is there to answer; the connection would only fail later, with stranger words."""
    sshd = make_sshd("AuthenticationMethods publickey,publickey")
    client.trust(sshd)

    assert refusal(client).message == f"{whoami()}@spark-1 is not let in by a key alone"


@pytest.mark.parametrize("form", ["RFC4716", "PEM", "PKCS8"])
def test_a_passphrase_is_seen_in_every_format(tmp_path: Path, form: str) -> None:
    """RFC4716 is ssh-keygen's name of OpenSSH's own format."""
    closed, opened = tmp_path / "closed", tmp_path / "opened"
    for file, passphrase in ((closed, "secret"), (opened, "")):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ecdsa", "-m", form, "-N", passphrase, "-f", file], check=True
        )

    assert encrypted(closed.read_bytes())
    assert not encrypted(opened.read_bytes())
