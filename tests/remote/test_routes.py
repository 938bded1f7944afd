"""Ways to a node: jump hosts, proxy commands; and one connection for all that we do there."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import FileError, UnreachableError
from orchestrator.shell import NodePath
from tests.remote.conftest import node, open_hosts, whoami

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.remote.connection import FabricHost
    from tests.remote.conftest import Client, Sshd

RELAY = """
import os, socket, sys, threading
there = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while data := os.read(0, 65536):
        there.sendall(data)
threading.Thread(target=up, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""


def test_everything_goes_through_one_connection(make_sshd, client: Client, tmp_path: Path) -> None:
    """sshd's own log counts: sites limit logins, and second factors ask each time."""
    sshd = make_sshd()
    client.trust(sshd)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        host = hosts["spark-1"]
        host.run("true", timeout_s=20)
        host.put(NodePath(f"{tmp_path}/x"), b"x")
        host.read(NodePath(f"{tmp_path}/x"))
        host.open_tcp("127.0.0.1", sshd.port, 5).close()
        host.alive()
        host.run("true", timeout_s=20)

    assert sshd.logins == 1


def test_all_files_go_through_one_channel(make_sshd, client: Client, tmp_path: Path) -> None:
    """sshd counts sessions, too: MaxSessions is 10, and each of them is a round trip or two."""
    sshd = make_sshd()
    client.trust(sshd)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        for name in ("a", "b"):
            hosts["spark-1"].put(NodePath(f"{tmp_path}/{name}"), b"x")
            hosts["spark-1"].read(NodePath(f"{tmp_path}/{name}"))

    sshd.wait_for("Connection closed by")
    assert sum("subsystem 'sftp'" in line for line in sshd.log) == 1


def test_a_jump_host_leads_to_the_node(client: Client, sshd: Sshd, jump: Sshd) -> None:
    client.configure(client.host("spark-1", sshd, "ProxyJump gate") + client.host("gate", jump))
    client.know(sshd)
    client.know(jump)
    before = sshd.logins, jump.logins

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].run("echo here", timeout_s=20).stdout == "here\n"

    assert (sshd.logins, jump.logins) == (before[0] + 1, before[1] + 1)


def test_jump_hosts_can_be_chained(client: Client, sshd: Sshd, jump: Sshd) -> None:
    """The second is reached through the first; here it is the same machine under two names."""
    client.configure(
        client.host("spark-1", sshd, "ProxyJump first,second")
        + client.host("first", jump)
        + client.host("second", sshd)
    )
    client.know(sshd)
    client.know(jump)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].run("echo here", timeout_s=20).stdout == "here\n"


def test_a_proxy_command_leads_to_the_node(client: Client, sshd: Sshd, tmp_path: Path) -> None:
    relay = tmp_path / "relay.py"
    relay.write_text(RELAY)
    client.configure(client.host("spark-1", sshd, f"ProxyCommand {sys.executable} {relay} %h %p"))
    client.know(sshd)

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].run("echo here", timeout_s=20).stdout == "here\n"


def test_a_proxy_command_that_ends_is_quoted(client: Client, sshd: Sshd) -> None:
    """paramiko's own would wait for its banner until the time runs out."""
    client.configure(client.host("spark-1", sshd, "ProxyCommand echo no route to %h >&2; exit 1"))

    with pytest.raises(UnreachableError) as caught:
        open_hosts([node("spark-1")], client.environment)

    assert "ProxyCommand said: no route to 127.0.0.1" in (caught.value.found or "")


def test_user_and_port_of_the_inventory_win(client: Client, sshd: Sshd) -> None:
    """`ssh: user@host:port` beside a Host section for everybody."""
    client.configure(f"Host *\n  User nobody-here\n  Port 1\n{client.host('*', sshd)}")
    client.know(sshd)

    with open_hosts([node("spark-1", f"{whoami()}@127.0.0.1:{sshd.port}")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_a_mistake_in_ssh_config_is_shown(client: Client) -> None:
    client.configure("Host spark-1\n  NoSuchOption yes\n")

    with pytest.raises(FileError) as caught:
        open_hosts([node("spark-1")], client.environment)

    assert "nosuchoption" in (caught.value.found or "").lower()


def test_without_an_ssh_program_we_get_there_as_well(client: Client, sshd: Sshd, jump: Sshd) -> None:
    client.configure(client.host("spark-1", sshd, "ProxyJump gate") + client.host("gate", jump))
    client.know(sshd)
    client.know(jump)
    client.ssh = None

    with open_hosts([node("spark-1")], client.environment) as hosts:
        assert hosts["spark-1"].alive()


def test_nodes_work_side_by_side(client: Client, sshd: Sshd) -> None:
    """Each script waits for the other: one after the other would never end."""
    client.configure(client.host("spark-1", sshd) + client.host("spark-2", sshd))
    client.know(sshd)
    with open_hosts([node("spark-1"), node("spark-2", rank=1)], client.environment) as hosts:
        fifo = sshd.home / "fifo"
        hosts["spark-1"].run(f"mkfifo {fifo}", timeout_s=20)
        said: list[str] = []

        def read(host: FabricHost) -> None:
            said.append(host.run(f"cat {fifo}", timeout_s=20).stdout)

        reader = threading.Thread(target=read, args=(hosts["spark-1"],))
        reader.start()
        hosts["spark-2"].run(f"echo hello > {fifo}", timeout_s=20)
        reader.join()

    assert said == ["hello\n"]
