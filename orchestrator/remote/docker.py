"""A node's Docker engine, read only: the docker SDK over `docker system dial-stdio` on our connection."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import docker
import docker.constants
import docker.errors
import docker.utils
import requests
from docker.transport.basehttpadapter import BaseHTTPAdapter
from docker.transport.sshconn import SSHConnectionPool
from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError

from orchestrator.errors import RefusedError, SparkDeployError, StepFailedError, UnreachableError
from orchestrator.remote.tunnel import ChannelSocket

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    import paramiko
    from urllib3.connectionpool import HTTPConnectionPool

    from orchestrator.remote.connection import FabricHost

DIAL = "docker system dial-stdio"


class SshDocker:
    """Implements remote.host.Docker."""

    def __init__(self, host: FabricHost, answer_s: float) -> None:
        """No connection is made before the first question; *answer_s* is the limit of each answer."""
        self._host = host
        self._answer_s = answer_s
        self._client: docker.APIClient | None = None

    def container(self, name: str) -> dict[str, Any] | None:
        """
        `docker inspect NAME`, None where there is none.

        Raises:
            RefusedError: no docker in the PATH of a non-interactive login, or no right to use it.
            StepFailedError: the engine answers with an error, or not at all.
            UnreachableError: the connection is gone.
        """
        found: dict[str, Any] | None = self._ask(lambda client: client.inspect_container(name))
        return found

    def logs(self, name: str, *, follow: bool = False, tail: int | None = None) -> Iterator[bytes]:
        """Give both streams' chunks as they came, none where there is no container. Raises as container()."""
        chunks = self._ask(
            lambda client: client.logs(name, stream=True, follow=follow, tail="all" if tail is None else tail)
        )
        # docker-py's wrapper takes a cut connection for the end of the log.
        yield from self._guarded(getattr(chunks, "_stream", chunks) or iter(()))

    def _guarded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        try:
            yield from chunks
        except (
            OSError,
            EOFError,
            HTTPError,
            requests.RequestException,
            docker.errors.DockerException,
        ) as error:
            raise self._failed(str(error)) from error

    def _ask(self, question: Callable[[docker.APIClient], Any]) -> Any:
        """Ask, and once more over a new channel: the engine may have closed the idle one (dockerd restarted)."""
        fresh = self._client is None
        try:
            self._client = self._client or self._negotiated()
            return question(self._client)
        except docker.errors.NotFound:
            return None
        except (requests.ConnectionError, requests.Timeout, docker.errors.DockerException) as error:
            self._client = None
            if fresh or not isinstance(error, requests.ConnectionError):
                raise self._failed(str(getattr(error, "explanation", None) or error)) from error
        return self._ask(question)

    def _failed(self, found: str) -> SparkDeployError:
        name = self._host.node.name
        if not self._host.alive():
            return UnreachableError(f"the connection to {name} is lost", at=name, found=found)
        return StepFailedError("the Docker engine does not answer", at=name, found=found)

    def _negotiated(self) -> docker.APIClient:
        """A client that speaks the newest API version that both sides know: Docker 20.10 ends at 1.41."""
        client = client_for(self._host, self._answer_s)
        theirs = str(client.version(api_version=False)["ApiVersion"])
        ours = docker.constants.DEFAULT_DOCKER_API_VERSION
        client._version = ours if docker.utils.version_gte(theirs, ours) else theirs  # type: ignore[attr-defined]  # noqa: SLF001
        return client


def client_for(host: FabricHost, answer_s: float) -> docker.APIClient:
    """A docker-py client whose every connection is a channel of *host*."""
    client = docker.APIClient(base_url="http://localhost:80", version="1.24")  # asks nothing yet
    client.base_url = "http+docker://ssh"
    client.trust_env = False  # a proxy of the environment has no part in this
    client.adapters.clear()
    client.timeout = answer_s  # type: ignore[assignment]  # requests takes fractions

    def dial() -> _DialStdio:
        channel = host.open_session(answer_s)
        channel.settimeout(answer_s)
        channel.exec_command(DIAL)
        return _DialStdio(channel, host, answer_s)

    client.mount(client.base_url, _Adapter(dial))
    return client


class _Adapter(BaseHTTPAdapter):
    """What docker-py's own SSH adapter does, but over a connection that is open and verified."""

    def __init__(self, dial: Callable[[], _DialStdio]) -> None:
        super().__init__()
        self._pool = _Pool(dial)

    def get_connection(self, url: str | bytes, proxies: object = None) -> HTTPConnectionPool:
        del url, proxies
        return self._pool


class _Pool(SSHConnectionPool):
    def __init__(self, dial: Callable[[], _DialStdio]) -> None:
        super().__init__()
        self._dial = dial

    def _new_conn(self) -> HTTPConnection:
        return _Connection(self._dial)


class _Connection(HTTPConnection):
    def __init__(self, dial: Callable[[], _DialStdio]) -> None:
        super().__init__("localhost")
        self._dial = dial

    def connect(self) -> None:
        self.sock = cast("socket.socket", self._dial())


class _DialStdio(ChannelSocket):
    """Turns the end of a `docker` that never began into what to do about it."""

    def __init__(self, channel: paramiko.Channel, host: FabricHost, answer_s: float) -> None:
        super().__init__(channel)
        self._host = host
        self._answer_s = answer_s
        self._answered = False
        self._patient = False

    def settimeout(self, seconds: float | None) -> None:
        """None (a followed log): wait as long as the connection lives, not for ever."""
        self._patient = seconds is None
        super().settimeout(self._answer_s if seconds is None else seconds)

    def recv(self, size: int) -> bytes:
        data = self._wait(size)
        if not data and not self._answered:
            raise explain(self._host.node.name, *self._last_words())
        self._answered = True
        return data

    def _wait(self, size: int) -> bytes:
        while True:
            with contextlib.suppress(TimeoutError):
                return super().recv(size)
            if not (self._patient and self._host.alive()):
                raise TimeoutError(f"no byte within {self._answer_s:g} s")

    def _last_words(self) -> tuple[int, str]:
        code = self.channel.recv_exit_status()
        said = bytearray()
        while self.channel.recv_stderr_ready():
            said += self.channel.recv_stderr(4096)
        return code, " ".join(said.decode(errors="replace").split())


def explain(node: str, exit_code: int, said: str) -> RefusedError:
    """What it means that `docker system dial-stdio` ended with *exit_code* and *said* this."""
    if exit_code == 127 or "not found" in said:
        return RefusedError(
            "no docker in the PATH of a non-interactive login",
            at=node,
            found=said or "exit code 127",
            wanted=f"`ssh {node} docker version` works",
            hint="install Docker, or link it to /usr/local/bin: sudo ln -s $(which docker) /usr/local/bin/",
        )
    if "permission denied" in said.lower():
        return RefusedError(
            "the user that we log in as may not use Docker",
            at=node,
            found=said,
            hint="on the node: sudo usermod -aG docker $USER, then log out everywhere, and try again",
        )
    return RefusedError(
        "the Docker engine cannot be reached",
        at=node,
        found=said or f"`{DIAL}` ended with exit code {exit_code}",
        hint="is it running? sudo systemctl status docker",
    )
