"""Links that break, stay silent or never come up: everything ends, in time, with UnreachableError."""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import UnreachableError
from orchestrator.remote.connect import try_hosts
from orchestrator.remote.connection import Limits
from orchestrator.remote.strict import HostKeyError
from orchestrator.shell import NodePath
from tests.remote.conftest import free_port, keygen, node, open_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.remote.connection import FabricHost
    from tests.remote.conftest import Client, Sshd

SHORT = Limits(alive_s=1, file_s=2, docker_s=1, script_grace_s=2, probe_s=0.5, answer_s=3)


@pytest.fixture
def own(make_sshd, client: Client) -> Iterator[tuple[FabricHost, Sshd]]:
    """A host behind a server of its own, which the test may break; its limits are short."""
    sshd = make_sshd()
    client.trust(sshd)
    with open_hosts([node("spark-1")], client.environment, SHORT) as hosts:
        yield hosts["spark-1"], sshd
        sshd.signal_sessions(signal.SIGCONT)


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def gone(pid: int) -> bool:
    """Wait until a process has ended."""
    try:
        watcher = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([watcher], [], [], 20)[0])
    finally:
        os.close(watcher)


def test_a_server_killed_in_mid_run_is_unreachable(own: tuple[FabricHost, Sshd]) -> None:
    """Not an exit code: nobody knows how the script ended."""
    host, sshd = own

    with pytest.raises(UnreachableError) as caught:
        host.run(
            "echo ready; sleep 320", timeout_s=60, on_line=lambda _: sshd.signal_sessions(signal.SIGKILL)
        )

    assert str(caught.value) == (
        "the connection to spark-1 is lost\n  at     spark-1\n  found  it ended while a script ran"
    )
    assert not host.alive()


def test_a_script_dies_with_its_connection(own: tuple[FabricHost, Sshd]) -> None:
    """A roll-back over a new connection must not race with it."""
    host, sshd = own
    pids: list[int] = []

    def on_line(line: str) -> None:
        pids.append(int(line))
        sshd.signal_sessions(signal.SIGKILL)

    with pytest.raises(UnreachableError):
        host.run("echo $$; sleep 321", timeout_s=60, on_line=on_line)

    assert gone(pids[0])


def test_closing_ends_a_script_of_another_thread(own: tuple[FabricHost, Sshd]) -> None:
    host, _ = own

    with pytest.raises(UnreachableError):
        host.run(
            "echo ready; sleep 322",
            timeout_s=60,
            on_line=lambda _: threading.Thread(target=host.close).start(),
        )


def test_a_script_on_a_silent_link_ends_with_its_time_limit(own: tuple[FabricHost, Sshd]) -> None:
    """The cable is out, or the node's memory is: TCP says nothing for a quarter of an hour."""
    host, sshd = own
    began = time.monotonic()

    with pytest.raises(UnreachableError, match="connection to spark-1 is lost"):
        host.run("echo ready; sleep 323", timeout_s=1, on_line=lambda _: sshd.signal_sessions(signal.SIGSTOP))

    assert time.monotonic() - began < 10


def test_a_link_that_dies_under_a_long_script_is_noticed_long_before_its_limit(
    own: tuple[FabricHost, Sshd],
) -> None:
    """Behind a jump host TCP sees nothing: the jump host is well."""
    host, sshd = own
    began = time.monotonic()

    with pytest.raises(UnreachableError):
        host.run(
            "echo ready; sleep 325", timeout_s=60, on_line=lambda _: sshd.signal_sessions(signal.SIGSTOP)
        )

    assert time.monotonic() - began < 45


def test_a_script_that_is_silent_for_long_is_left_alone(own: tuple[FabricHost, Sshd]) -> None:
    """The node answers for it."""
    host, _ = own

    assert host.run("sleep 2; echo done", timeout_s=60).stdout == "done\n"


def test_cancel_on_a_silent_link_ends_the_wait(own: tuple[FabricHost, Sshd]) -> None:
    """Ctrl-C, while a script with an hour's limit waits on a dead link."""
    host, sshd = own

    def on_line(_: str) -> None:
        sshd.signal_sessions(signal.SIGSTOP)
        threading.Thread(target=host.cancel).start()

    with pytest.raises(UnreachableError):
        host.run("echo ready; sleep 324", timeout_s=3600, on_line=on_line)


@pytest.mark.parametrize(
    "action",
    [
        lambda host: host.run("true", timeout_s=0.5),
        lambda host: host.put(NodePath("~/x"), b"x"),
        lambda host: host.put(NodePath("~/x"), b"x" * 3_000_000),
        lambda host: host.read(NodePath("~/x")),
        lambda host: host.docker().container("x"),
    ],
    ids=["run", "put", "put-much", "read", "docker"],
)
def test_nothing_hangs_on_a_silent_link(own: tuple[FabricHost, Sshd], action) -> None:
    host, sshd = own
    host.put(NodePath("~/warm"), b"")
    sshd.signal_sessions(signal.SIGSTOP)

    with pytest.raises(UnreachableError):
        action(host)


def test_a_silent_link_is_not_alive(own: tuple[FabricHost, Sshd]) -> None:
    host, sshd = own
    sshd.signal_sessions(signal.SIGSTOP)

    assert not host.alive()


def test_a_tcp_connection_through_a_silent_link_times_out(own: tuple[FabricHost, Sshd]) -> None:
    host, sshd = own
    sshd.signal_sessions(signal.SIGSTOP)

    with pytest.raises(TimeoutError):
        host.open_tcp("127.0.0.1", 1, 0.5)


def test_a_lost_connection_can_be_had_again(own: tuple[FabricHost, Sshd]) -> None:
    host, sshd = own
    sshd.signal_sessions(signal.SIGKILL)
    host.reconnect()

    assert host.run("echo back", timeout_s=20).stdout == "back\n"


def test_a_second_connection_is_as_strict_as_the_first(own: tuple[FabricHost, Sshd]) -> None:
    """While the link was down, another machine took the address."""
    host, sshd = own
    sshd.stop()
    for file in (sshd.key, sshd.key.with_name(sshd.key.name + ".pub")):
        file.unlink()
    keygen(sshd.key)
    sshd.start()

    with pytest.raises(HostKeyError, match="has CHANGED"):
        host.reconnect()


def test_a_host_that_is_not_connected_says_so(own: tuple[FabricHost, Sshd]) -> None:
    host, sshd = own
    sshd.stop()
    with pytest.raises(UnreachableError):
        host.reconnect()

    with pytest.raises(UnreachableError) as caught:
        host.run("true", timeout_s=5)

    assert caught.value.found == "not connected"


def test_a_closed_port_is_unreachable_at_once(client: Client, sshd: Sshd) -> None:
    closed = free_port()
    client.configure(client.host("spark-1", sshd).replace(f"Port {sshd.port}", f"Port {closed}"))

    with pytest.raises(UnreachableError) as caught:
        open_hosts([node("spark-1")], client.environment)

    assert str(caught.value) == (
        "spark-1 cannot be reached\n"
        f"  at     spark-1 (127.0.0.1:{closed})\n"
        "  found  Connection refused\n"
        f"  wanted an SSH server at 127.0.0.1:{closed}\n"
        "  hint   is it on, and is the address right?"
    )


def test_a_name_that_does_not_exist_is_unreachable(client: Client, sshd: Sshd) -> None:
    client.configure(
        client.host("spark-1", sshd).replace("HostName 127.0.0.1", "HostName no-such-host.invalid")
    )

    with pytest.raises(UnreachableError) as caught:
        open_hosts([node("spark-1")], client.environment)

    assert "no-such-host.invalid" in (caught.value.wanted or "")


def test_silent_servers_are_given_up_together(client: Client, sshd: Sshd, silent: int) -> None:
    """All nodes at the same time: five that do not answer cost what one costs."""
    section = client.host("silent-*", sshd, "ConnectTimeout 1").replace(f"Port {sshd.port}", f"Port {silent}")
    client.configure(section)
    began = time.monotonic()

    hosts, errors = try_hosts([node(f"silent-{rank}", rank=rank) for rank in range(5)], client.environment)

    assert time.monotonic() - began < 4.5
    assert not hosts
    assert {error.found for error in errors} == {"no answer within 1 s"}


def test_a_silent_host_behind_a_jump_host_is_given_up(
    client: Client, sshd: Sshd, jump: Sshd, silent: int
) -> None:
    section = client.host("spark-1", sshd, "ConnectTimeout 1", "ProxyJump gate")
    client.configure(section.replace(f"Port {sshd.port}", f"Port {silent}") + client.host("gate", jump))
    client.know(jump)

    with pytest.raises(UnreachableError) as caught:
        open_hosts([node("spark-1")], client.environment)

    assert caught.value.at == f"spark-1 (127.0.0.1:{silent})"
    assert caught.value.found == "no answer within 1 s"
