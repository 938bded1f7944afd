"""Where the requests go: one OpenAI-compatible server, and how it is dialled."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from orchestrator import __version__
from orchestrator.errors import FileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class Server:
    """*connect* is dialled in place of *host* and *port* where it is given: the near end of a forward."""

    url: str  # as given, without `/v1` and without a slash at the end
    host: str
    port: int
    tls: bool = False
    path: str = ""  # what comes before `/v1`
    key: str = field(default="", repr=False)
    connect: tuple[str, int] | None = None
    ca_file: str = ""
    insecure: bool = False

    @property
    def address(self) -> tuple[str, int]:
        return self.connect or (self.host, self.port)

    @property
    def authority(self) -> str:
        """The Host header: the name that was asked for, never the address of a forward."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _port(tls=self.tls) else f"{host}:{self.port}"


def parse_url(url: str, key: str = "", **more: Any) -> Server:
    """
    Read *url* as users write it: with or without `/v1`, with or without a prefix before that; *more* goes to Server.

    Raises:
        UsageError: no http or https URL, one with a user or a query in it, or a key no header can carry.
    """
    parts, port = _split(url)
    if not re.fullmatch(r"[!-~]*", key):  # which is never shown
        raise UsageError("the API key has a character that no header can carry", wanted="visible ASCII")
    path = re.sub(r"/v1$", "", parts.path.rstrip("/")).rstrip("/")
    tls = parts.scheme == "https"
    given = f"{parts.scheme}://{parts.netloc}{path}"
    return Server(given, parts.hostname or "", port or _port(tls=tls), tls, path, key, **more)


def headers(server: Server) -> Mapping[str, str]:
    """Every request's headers, but for its content's. No compression: it would hold events back."""
    key = {"authorization": f"Bearer {server.key}"} if server.key else {}
    agent = f"spark-deploy/{__version__}"
    return {"host": server.authority, "user-agent": agent, "accept-encoding": "identity", **key}


def post_head(server: Server, path: str) -> bytes:
    """Give the bytes before the body of a POST, with `%d` for its length."""
    lines = [f"{name}: {value}" for name, value in headers(server).items()]
    lines = [f"POST {path} HTTP/1.1", *lines, "accept: */*", "content-type: application/json"]
    return "\r\n".join(lines).replace("%", "%%").encode() + b"\r\ncontent-length: %d\r\n\r\n"


def small_request(server: Server) -> bytes:
    """Give a request that any server answers at once, if only with 404."""
    lines = [f"{name}: {value}" for name, value in headers(server).items()]
    return "\r\n".join([f"GET {server.path}/health HTTP/1.1", *lines, "", ""]).encode()


@cache
def ssl_context(server: Server) -> ssl.SSLContext | None:
    """
    Give None for plain http. Made once: it takes 20 ms to read the CAs, and /metrics is asked beside a timed level.

    Raises:
        FileError: the CA file is not there, or is none.
    """
    if not server.tls:
        return None
    try:
        context = ssl.create_default_context(cafile=server.ca_file or None)
    except OSError as error:  # ssl.SSLError is one
        raise FileError(f"not a CA file: {error}", at=server.ca_file, wanted="certificates in PEM") from error
    if server.insecure:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def api_path(server: Server, endpoint: str) -> str:
    """Give the path of *endpoint*, e.g. `/completions`, behind the server's prefix."""
    return f"{server.path}/v1{endpoint}"


def _split(url: str) -> tuple[SplitResult, int | None]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise _no_url(url, str(error)) from error
    if parts.scheme not in ("http", "https") or not parts.hostname or port == 0:
        raise _no_url(url)
    if not re.fullmatch(r"[!-~]+", url):
        raise _no_url(url, "a character that no URL has")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _no_url(url, "a user, a query or a fragment")
    try:
        parts.hostname.encode("idna")  # as every look-up of the name does
    except UnicodeError as error:
        raise _no_url(url, "a host name with an empty or too long part") from error
    return parts, port


def _no_url(url: str, found: str = "") -> UsageError:
    wanted = "http://HOST[:PORT] or https://HOST[:PORT], with or without /v1"
    return UsageError(f"not the URL of a server: {url!r}", found=found or None, wanted=wanted)


def _port(*, tls: bool) -> int:
    return 443 if tls else 80
