"""What `ssh -G` prints, typed; and how an inventory may write a host."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import FileError, UsageError
from orchestrator.remote.ssh_config import (
    Destination,
    SshEnvironment,
    SshSettings,
    parse_destination,
    parse_ssh_g,
    route,
    settings_from,
)

HERE = SshEnvironment(home=Path("/home/ann"), passwd_home=Path("/home/ann"), user="ann", agent="/run/agent")


def settings(output: str, written: str = "spark-1", environment: SshEnvironment = HERE) -> SshSettings:
    return settings_from(parse_ssh_g(output), written, parse_destination(written), environment)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("spark-1", Destination("spark-1")),
        ("ann@spark-1", Destination("spark-1", "ann")),
        ("ann@spark-1:2222", Destination("spark-1", "ann", 2222)),
        ("10.0.0.1:22", Destination("10.0.0.1", "", 22)),
        ("[fe80::1]:2222", Destination("fe80::1", "", 2222)),
        ("ann@[2001:db8::1]", Destination("2001:db8::1", "ann")),
        ("2001:db8::1", Destination("2001:db8::1")),
        ("ssh://ann@spark-1:22", Destination("spark-1", "ann", 22)),
        ("dom\\ann@x@spark-1", Destination("spark-1", "dom\\ann@x")),
    ],
)
def test_all_ways_to_write_a_host_are_understood(written: str, expected: Destination) -> None:
    """An IPv6 address needs brackets only where a port follows."""
    assert parse_destination(written) == expected


@pytest.mark.parametrize(
    "written",
    ["", "ann@", "-oProxyCommand=true", "-l@host", "host:0", "host:99999", "a b", "[::1", "host:22x", "a\nb"],
)
def test_what_is_no_host_is_refused(written: str) -> None:
    """A name that begins with a dash would be an option of ssh, and could run a command here."""
    with pytest.raises(UsageError):
        parse_destination(written)


def test_repeated_options_are_kept_in_order() -> None:
    """IdentityFile may be given many times; ssh tries them in this order."""
    options = parse_ssh_g("user ann\nidentityfile ~/.ssh/a\nidentityfile ~/.ssh/b\n")

    assert options == {"user": ["ann"], "identityfile": ["~/.ssh/a", "~/.ssh/b"]}


def test_home_and_percent_signs_are_expanded() -> None:
    """`ssh -G` prints IdentityFile as it was written."""
    found = settings(
        "hostname 10.0.0.1\nport 22\nuser op\nidentityfile ~/.ssh/id\nidentityfile %d/keys/%r@%h\n"
    )

    assert found.identity_files == (Path("/home/ann/.ssh/id"), Path("/home/ann/keys/op@10.0.0.1"))


def test_a_proxy_command_gets_host_and_port() -> None:
    """It runs in a shell of ours, which knows no percent signs."""
    found = settings("hostname 10.0.0.1\nport 2222\nproxycommand nc %h %p # %n 100%%\n")

    assert found.proxy_command == "nc 10.0.0.1 2222 # spark-1 100%"


def test_a_known_hosts_path_with_a_blank_stays_whole() -> None:
    """`ssh -G` prints a list of paths without quotes."""
    found = settings("userknownhostsfile /tmp/with space/x /home/ann/.ssh/known_hosts\n")

    assert found.user_known_hosts == (Path("/tmp/with space/x"), Path("/home/ann/.ssh/known_hosts"))


def test_tilde_means_home_even_where_passwd_disagrees() -> None:
    """In containers and tests $HOME is not what passwd says, and ssh expands with the latter."""
    moved = SshEnvironment(home=Path("/tmp/me"), passwd_home=Path("/home/ann"), user="ann")
    found = settings("userknownhostsfile /home/ann/.ssh/known_hosts /etc/known\n", environment=moved)

    assert found.user_known_hosts == (Path("/tmp/me/.ssh/known_hosts"), Path("/etc/known"))


def test_a_passwd_home_of_root_moves_nothing() -> None:
    """System users live in /: every path would lie below it."""
    moved = SshEnvironment(home=Path("/tmp/me"), passwd_home=Path("/"), user="nobody")

    assert settings("globalknownhostsfile /etc/k\n", environment=moved).global_known_hosts == (
        Path("/etc/k"),
    )


def test_none_is_nothing() -> None:
    """ssh_config says `none` to switch an option off."""
    found = settings(
        "proxyjump none\nproxycommand none\nuserknownhostsfile none\nconnecttimeout none\nidentityagent none\n"
    )

    assert (found.proxy_jump, found.proxy_command, found.user_known_hosts, found.agent) == ((), "", (), "")
    assert found.connect_timeout_s == 10


def test_the_agent_of_the_environment_is_the_default() -> None:
    assert settings("user ann\n").agent == "/run/agent"


def test_a_port_of_its_own_is_part_of_the_name_in_known_hosts() -> None:
    """sshd(8): [host]:port; HostKeyAlias stands for both."""
    assert settings("hostname Spark.Lan\nport 2222\n").known_hosts_name == "[spark.lan]:2222"
    assert settings("hostname Spark.Lan\nport 22\n").known_hosts_name == "spark.lan"
    assert settings("hostname spark\nport 2222\nhostkeyalias Gold\n").known_hosts_name == "gold"


def without_ssh(home: Path, config: str) -> SshEnvironment:
    """A laptop without an ssh program, and its ssh_config."""
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text(config)
    return SshEnvironment(home, Path("/nowhere"), "ann", ssh=None)


def test_without_an_ssh_program_the_file_is_read_by_paramiko(tmp_path: Path) -> None:
    """A laptop without OpenSSH still has jump hosts, users and keys of its ssh_config."""
    config = "Host spark-1\n  HostName 10.0.0.1\n  Port 2222\n  User op\n  ProxyJump gate\nHost gate\n  User jumper\n"

    gate, host = route("spark-1", without_ssh(tmp_path, config))

    assert (gate.hostname, gate.user, host.address, host.user) == ("gate", "jumper", "10.0.0.1:2222", "op")
    assert host.user_known_hosts[0] == tmp_path / ".ssh" / "known_hosts"
    assert host.identity_files[-1] == tmp_path / ".ssh" / "id_ed25519"


def test_a_chain_of_jumps_is_dialled_from_the_left(tmp_path: Path) -> None:
    """`ProxyJump a,b`: a is reached first; b's own ProxyJump does not count, a's does."""
    config = "Host t\n  ProxyJump a,b\nHost b\n  ProxyJump wrong\nHost a\n  ProxyJump first\n"

    assert [hop.written for hop in route("t", without_ssh(tmp_path, config))] == ["first", "a", "b", "t"]


def test_a_loop_of_jump_hosts_is_named(tmp_path: Path) -> None:
    """`Host *` with ProxyJump applies to the jump host as well: a common slip."""
    environment = without_ssh(tmp_path, "Host *\n  ProxyJump gate\n")

    with pytest.raises(FileError, match="form a loop"):
        route("spark-1", environment)
