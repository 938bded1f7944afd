"""Messages between the stub's processes: one JSON object a line, over TCP."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

Message = dict[str, Any]
# what Ray 2.60 says
UNAUTHENTICATED = (
    "RPC error: InvalidAuthToken: Authentication token is missing or incorrect. Ensure that the token for the cluster is "
    "available in a local file (e.g., ~/.ray/auth_token or via RAY_AUTH_TOKEN_PATH) or as the `RAY_AUTH_TOKEN` "
    "environment variable. To generate a token for local development, use `ray get-auth-token --generate` For remote "
    "clusters, ensure that the token is propagated to all nodes of the cluster when token authentication is enabled. For "
    "more information, see: https://docs.ray.io/en/latest/ray-security/token-auth.html"
)
NO_TOKEN = "Token authentication is enabled but no authentication token was found"


class UnauthenticatedError(Exception):
    def __init__(self) -> None:
        super().__init__(UNAUTHENTICATED)


def auth_required() -> bool:
    return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"


def token() -> str:
    """RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token: the first there is, else nothing."""
    if found := os.environ.get("RAY_AUTH_TOKEN"):
        return found
    places = [os.environ.get("RAY_AUTH_TOKEN_PATH"), str(Path.home() / ".ray/auth_token")]
    return next((Path(place).read_text().strip() for place in places if place and Path(place).exists()), "")


class Line:
    """One connection; send() may be called from several threads."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.reader = connection.makefile("rb")
        self.lock = threading.Lock()

    def send(self, message: Message) -> None:
        with self.lock:
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> Message | None:
        """The next message; None when the other side is gone or silent for longer than the socket's time limit."""
        try:
            raw = self.reader.readline()
            return json.loads(raw) if raw.endswith(b"\n") else None
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        # shutdown() and not only close(): it wakes a thread that reads
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.connection.close()


def dial(address: str, message: Message, timeout_s: float = 5) -> tuple[Line, Message]:
    """
    Open a connection to *address*, say *message*, give the line and the answer.

    Raises:
        OSError: nobody answers.
        UnauthenticatedError: the token is wrong.
    """
    host, port = address.rsplit(":", 1)
    line = Line(socket.create_connection((host, int(port)), timeout_s))
    line.send({"token": token(), **message})
    answer = line.receive()
    if answer is None:
        line.close()
        raise ConnectionError(f"{address} closed the connection")
    if answer.get("error") == "InvalidAuthToken":
        line.close()
        raise UnauthenticatedError
    return line, answer


def ask(address: str, message: Message, timeout_s: float = 5) -> Message:
    line, answer = dial(address, message, timeout_s)
    line.close()
    return answer


def keep_alive(line: Line) -> Line:
    """No time limit from now on."""
    line.connection.settimeout(None)
    line.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return line
