"""The node's Docker engine through `docker system dial-stdio`, on the connection that is open already."""

from __future__ import annotations

import contextlib
import http.server
import json
import shutil
import signal
import socket
import socketserver
import struct
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import Exit, RefusedError, StepFailedError, UnreachableError
from orchestrator.remote.connection import Limits
from tests.remote.conftest import node, open_hosts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.remote.connection import FabricHost
    from tests.remote.conftest import Client, Sshd

# What `docker system dial-stdio` does: standard input and output become a connection to the engine.
DIAL_STDIO = """#!{python}
import os, socket, sys, threading
if sys.argv[1:] != ["system", "dial-stdio"]:
    sys.exit(64)
there = socket.socket(socket.AF_UNIX)
there.connect({socket!r})
def up():
    while data := os.read(0, 65536):
        there.sendall(data)
    there.shutdown(socket.SHUT_WR)
threading.Thread(target=up, daemon=True).start()
while data := there.recv(65536):
    os.write(1, data)
"""


class Engine(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """As much of a Docker 20.10 as we ask for."""

    daemon_threads = True
    api_version = "1.41"

    def __init__(self, path: str) -> None:
        super().__init__(path, Answers)
        self.asked: list[str] = []
        self.follow = threading.Event()
        self.connections: list[socket.socket] = []

    def get_request(self) -> tuple[socket.socket, str]:
        connection, _ = super().get_request()
        self.connections.append(connection)
        return connection, "unix"

    def hang_up(self) -> None:
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.server.asked.append(self.path)
        version = "" if path == "/version" else f"/v{self.server.api_version}"
        name = path.removeprefix(version)
        if name == "/version":
            self.answer(200, {"ApiVersion": self.server.api_version, "MinAPIVersion": "1.12"})
        elif name == "/containers/there/json":
            self.answer(200, {"Id": "abc", "Config": {"Tty": False}, "State": {"Running": True}})
        elif name == "/containers/there/logs":
            self.stream()
        elif name == "/containers/ill/json":
            self.answer(500, {"message": "driver failed"})
        else:
            self.answer(404, {"message": f"No such thing: {path}"})

    def answer(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.frame(1, b"out\n")
        if "follow=1" in self.path:
            self.server.follow.wait(20)
        with contextlib.suppress(BrokenPipeError):  # hung up meanwhile
            self.frame(2, b"err\n")
            self.wfile.write(b"0\r\n\r\n")

    def frame(self, stream: int, text: bytes) -> None:
        data = struct.pack(">BxxxL", stream, len(text)) + text
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    with Engine(str(tmp_path / "engine")) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.follow.set()
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def docker_node(make_sshd, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sshd, Path]:
    """A server whose PATH begins with a folder of ours, and that folder."""
    folder = tmp_path_factory.mktemp("bin")
    for name in ("bash", "cat", "env", "head", "sleep", "timeout"):
        (folder / name).symlink_to(shutil.which(name))
    return make_sshd(f"SetEnv PATH={folder}"), folder


@pytest.fixture
def there(docker_node: tuple[Sshd, Path], client: Client) -> Iterator[FabricHost]:
    """An open connection to that server, on which no docker is installed yet."""
    sshd, folder = docker_node
    (folder / "docker").unlink(missing_ok=True)
    client.trust(sshd)
    with open_hosts([node("spark-1")], client.environment) as hosts:
        yield hosts["spark-1"]


def install(docker_node: tuple[Sshd, Path], text: str) -> None:
    program = docker_node[1] / "docker"
    program.write_text(text)
    program.chmod(0o755)


@pytest.fixture
def host(there: FabricHost, docker_node: tuple[Sshd, Path], engine: Engine) -> FabricHost:
    """The same with a docker that leads to the engine."""
    install(docker_node, DIAL_STDIO.format(python=sys.executable, socket=engine.server_address))
    return there


def test_a_container_is_inspected(host: FabricHost) -> None:
    container = host.docker().container("there")

    assert container is not None
    assert container["State"] == {"Running": True}


def test_what_is_not_there_is_none(host: FabricHost) -> None:
    docker = host.docker()

    assert docker.container("missing") is None
    assert list(docker.logs("missing")) == []


def test_the_api_version_is_one_that_the_engine_speaks(host: FabricHost, engine: Engine) -> None:
    """docker-py asks for 1.45 on its own; Docker 20.10 refuses that."""
    host.docker().container("there")

    assert engine.asked == ["/version", "/v1.41/containers/there/json"]


def test_a_newer_engine_is_asked_in_the_version_that_we_know(host: FabricHost, engine: Engine) -> None:
    engine.api_version = "1.99"
    host.docker().container("there")

    assert engine.asked[1].startswith("/v1.4")


def test_logs_have_both_streams_in_order(host: FabricHost, engine: Engine) -> None:
    assert b"".join(host.docker().logs("there", tail=5)) == b"out\nerr\n"
    assert any("tail=5" in asked for asked in engine.asked)


def test_followed_logs_come_as_they_are_written(host: FabricHost, engine: Engine) -> None:
    """The engine writes its second line when we have seen the first."""
    logs = host.docker().logs("there", follow=True)
    first = next(logs)
    engine.follow.set()

    assert [first, *logs] == [b"out\n", b"err\n"]


def test_a_followed_log_may_be_silent_for_long(host: FabricHost, engine: Engine, client: Client) -> None:
    """A model that serves nobody says nothing for hours; only a single answer has a limit."""
    with open_hosts([node("spark-1")], client.environment, Limits(docker_s=0.3)) as hosts:
        logs = hosts["spark-1"].docker().logs("there", follow=True)
        first = next(logs)
        threading.Timer(1, engine.follow.set).start()

        assert [first, *logs] == [b"out\n", b"err\n"]


def test_no_second_connection_is_made(host: FabricHost, docker_node: tuple[Sshd, Path]) -> None:
    """docker-py's own SSH transport would log in again, with its own idea of host keys."""
    before = docker_node[0].logins
    host.docker().container("there")

    assert docker_node[0].logins == before


def test_an_error_of_the_engine_is_quoted(host: FabricHost) -> None:
    with pytest.raises(StepFailedError) as caught:
        host.docker().container("ill")

    assert caught.value.found == "driver failed"


def test_a_proxy_in_the_environment_has_no_part_in_it(
    host: FabricHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    assert host.docker().container("there") is not None


def test_a_missing_docker_is_explained(there: FabricHost) -> None:
    """A docker that is only in the PATH of interactive shells: /snap/bin, rootless."""
    with pytest.raises(RefusedError) as caught:
        there.docker().container("x")

    assert caught.value.message == "no docker in the PATH of a non-interactive login"
    assert caught.value.at == "spark-1"
    assert caught.value.exit_code == Exit.CHECK


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            "the user that we log in as may not use Docker",
        ),
        (
            "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
            "the Docker engine cannot be reached",
        ),
    ],
    ids=["permission", "not-running"],
)
def test_what_docker_says_is_understood(
    there: FabricHost, docker_node: tuple[Sshd, Path], said: str, message: str
) -> None:
    install(docker_node, f"#!/bin/sh\necho '{said}' >&2\nexit 1\n")

    with pytest.raises(RefusedError) as caught:
        there.docker().container("x")

    assert caught.value.message == message
    assert said in (caught.value.found or "")


def test_an_engine_that_closed_an_idle_connection_is_asked_again(host: FabricHost, engine: Engine) -> None:
    """dockerd was restarted in between."""
    docker = host.docker()
    docker.container("there")
    engine.hang_up()

    assert docker.container("there") is not None


def test_an_engine_that_dies_while_a_log_is_followed_is_told(host: FabricHost, engine: Engine) -> None:
    """`logs -f` must not look as if the container had ended."""
    logs = host.docker().logs("there", follow=True)
    next(logs)
    engine.hang_up()

    with pytest.raises(StepFailedError, match="Docker engine"):
        list(logs)


def test_a_link_that_dies_while_a_log_is_followed_is_told(
    host: FabricHost, engine: Engine, docker_node: tuple[Sshd, Path]
) -> None:
    logs = host.docker().logs("there", follow=True)
    next(logs)
    docker_node[0].signal_sessions(signal.SIGKILL)

    with pytest.raises(UnreachableError):
        list(logs)
