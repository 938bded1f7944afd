"""A host key that known_hosts does not have is refused, on every hop, with the command that trusts it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import Exit, ManyError, UnreachableError
from orchestrator.remote.connect import try_hosts
from tests.remote.conftest import keygen, node, open_hosts, public

if TYPE_CHECKING:
    from pathlib import Path

    from tests.remote.conftest import Client, Sshd


def refusal(client: Client, name: str = "spark-1", ssh: str = "") -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        open_hosts([node(name, ssh)], client.environment)
    return caught.value


def test_an_unknown_key_is_refused_with_the_command_that_trusts_it(client: Client, sshd: Sshd) -> None:
    """Fabric's own default would accept it and write it down."""
    client.configure(client.host("spark-1", sshd))
    fingerprint = public(sshd.key).fingerprint

    error = refusal(client)

    assert str(error) == (
        "the host key of spark-1 is not known\n"
        f"  at     spark-1 (127.0.0.1:{sshd.port})\n"
        f"  found  ssh-ed25519 {fingerprint}\n"
        f"  wanted a line for [127.0.0.1]:{sshd.port} in {client.known_hosts}, /dev/null\n"
        "  hint   compare with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on its console, then: "
        f"spark-deploy trust spark-1 --fingerprint {fingerprint}"
    )
    assert error.exit_code == Exit.UNREACHABLE
    assert not client.known_hosts.exists()


def test_a_changed_key_is_refused_and_names_the_line(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    client.configure(client.host("spark-1", sshd))
    client.known_hosts.write_text("# my hosts\n")
    old = public(keygen(tmp_path / "old"))
    client.know(sshd, old)
    offered = public(sshd.key)

    error = refusal(client)

    assert error.message == "the host key of spark-1 has CHANGED"
    assert error.found == f"ssh-ed25519 {offered.fingerprint}"
    assert error.wanted == f"ssh-ed25519 {old.fingerprint} as in {client.known_hosts}:2"
    assert error.hint
    assert "do not go on before" in error.hint
    assert error.hint.endswith(f"spark-deploy trust spark-1 --fingerprint {offered.fingerprint}")


def test_nobody_logs_in_before_the_key_is_checked(client: Client, sshd: Sshd) -> None:
    """A machine in between must not even see which keys we have."""
    client.configure(client.host("spark-1", sshd))
    logins = sshd.logins

    refusal(client)

    assert sshd.logins == logins


def test_a_jump_host_with_an_unknown_key_is_refused(client: Client, sshd: Sshd, jump: Sshd) -> None:
    """Fabric's gateway keeps an AutoAddPolicy of its own; ours does not."""
    client.configure(client.host("spark-1", sshd, "ProxyJump gate") + client.host("gate", jump))
    client.know(sshd)

    error = refusal(client)

    assert error.message == "the host key of gate is not known"
    assert error.at == f"spark-1: jump host gate (127.0.0.1:{jump.port})"
    assert error.hint
    assert f"spark-deploy trust gate --fingerprint {public(jump.key).fingerprint}" in error.hint


def test_behind_a_known_jump_host_the_host_itself_is_checked(client: Client, sshd: Sshd, jump: Sshd) -> None:
    client.configure(client.host("spark-1", sshd, "ProxyJump gate") + client.host("gate", jump))
    client.know(jump)

    assert refusal(client).message == "the host key of spark-1 is not known"


def test_a_host_known_by_its_rsa_key_alone_is_known(client: Client, sshd: Sshd) -> None:
    """The server prefers ed25519; we ask for the type that we know, as ssh does."""
    client.configure(client.host("spark-1", sshd))
    client.know(sshd, public(sshd.rsa_key))

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_lines_that_paramiko_chokes_on_do_not_lock_anybody_out(client: Client, sshd: Sshd) -> None:
    client.configure(client.host("spark-1", sshd))
    client.known_hosts.write_text("@cert-authority *.lan ssh-ed25519 AAAA\ngarbage\nspark ssh-rsa %%%\n")
    client.know(sshd)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_a_host_key_alias_in_an_included_file_is_honoured(client: Client, sshd: Sshd) -> None:
    """paramiko's parser knows no Include; `ssh -G` does."""
    included = client.home / "sparks.conf"
    included.write_text(client.host("spark-1", sshd, "HostKeyAlias gold"))
    client.configure(f"Include {included}\n")
    client.know(sshd, name="gold")

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_a_revoked_key_is_refused_without_a_command_to_trust_it(client: Client, sshd: Sshd) -> None:
    client.trust(sshd)
    client.know(sshd, name="@revoked *")

    error = refusal(client)

    assert error.message == "the host key of spark-1 is revoked"
    assert "spark-deploy trust" not in str(error)


def test_all_hosts_that_fail_are_reported_together(client: Client, sshd: Sshd, jump: Sshd) -> None:
    """Two trips to the machine room instead of one are a nuisance."""
    client.configure(client.host("spark-1", sshd) + client.host("spark-2", jump))

    with pytest.raises(ManyError) as caught:
        open_hosts([node("spark-1"), node("spark-2", rank=1)], client.environment)

    assert [error.at for error in caught.value.errors] == [
        f"spark-1 (127.0.0.1:{sshd.port})",
        f"spark-2 (127.0.0.1:{jump.port})",
    ]
    assert caught.value.exit_code == Exit.UNREACHABLE


def test_the_hosts_that_answer_are_there_when_another_fails(client: Client, sshd: Sshd, jump: Sshd) -> None:
    """`status` shows what it can."""
    client.configure(client.host("spark-1", sshd) + client.host("spark-2", jump))
    client.know(sshd)

    hosts, errors = try_hosts([node("spark-1"), node("spark-2", rank=1)], client.environment)

    with hosts:
        assert list(hosts) == ["spark-1"]
        assert len(errors) == 1
