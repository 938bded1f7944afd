"""HTTP/1.1 as bytes: requests out of a buffer, answers and chunks into one."""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ndate: Tue, 01 Dec 2026 00:00:00 GMT\r\nserver: uvicorn\r\n"
    b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True)
class Call:
    """One request, whole."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def closes(self) -> bool:
        return self.headers.get("connection", "").lower() == "close"


def take(buffer: bytes) -> tuple[Call | None, bytes]:
    """The first request in *buffer*, and what is left; None: more bytes must come."""
    head, found, rest = buffer.partition(b"\r\n\r\n")
    if not found:
        return None, buffer
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if "chunked" in headers.get("transfer-encoding", "").lower():
        whole, body, rest = _chunked_body(rest)
    else:
        length = int(headers.get("content-length", 0))
        whole, body, rest = len(rest) >= length, rest[:length], rest[length:]
    if not whole:
        return None, buffer
    method, path, _ = first.split(" ", 2)
    return Call(method, path.split("?")[0], headers, body), rest


def _chunked_body(rest: bytes) -> tuple[bool, bytes, bytes]:
    body = b""
    while b"\r\n" in rest:
        size_line, _, after = rest.partition(b"\r\n")
        size = int(size_line.split(b";")[0], 16)
        if len(after) < size + 2:
            break
        body, rest = body + after[:size], after[size + 2 :]
        if size == 0:
            return True, body, rest
    return False, b"", rest


def answer(status: int, content: object, kind: str = "application/json") -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def unframed(framed: bytes) -> bytes:
    """The body that these chunks carry."""
    body = b""
    while framed:
        size_line, _, rest = framed.partition(b"\r\n")
        size = int(size_line, 16)
        body, framed = body + rest[:size], rest[size + 2 :]
    return body


def cut(framed: bytes, size: int) -> tuple[bytes, int]:
    """The first *size* bytes of the body of *framed* as one chunk, and how many these are."""
    body = unframed(framed)[:size]
    return (chunk(body) if body else b""), len(body)
