"""An SSH channel that passes for a socket, as http.client wants one."""

from __future__ import annotations

import contextlib
import io
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import paramiko
    from typing_extensions import Self


class ChannelSocket:
    """
    The methods of a socket that http.client and urllib3 use.

    Like a socket, and unlike a channel, it stays open until the last file made of it is closed:
    http.client closes the socket of a `Connection: close` answer before it reads the body.
    """

    def __init__(self, channel: paramiko.Channel) -> None:
        self.channel = channel
        self._files = 0
        self._closed = False

    def makefile(self, mode: str = "rb", buffering: int = -1) -> ChannelReader:
        """Only "rb": requests are written with sendall()."""
        if mode != "rb":
            raise ValueError(f"a channel's file is read only, not {mode!r}")
        self._files += 1
        size = io.DEFAULT_BUFFER_SIZE if buffering <= 1 else buffering
        return ChannelReader(_Raw(self), size)

    def recv(self, size: int) -> bytes:
        """Up to *size* bytes, b"" at the end. Raises TimeoutError."""
        return self.channel.recv(size)

    def sendall(self, data: bytes) -> None:
        self.channel.sendall(bytes(data))

    def settimeout(self, seconds: float | None) -> None:
        self.channel.settimeout(seconds)

    def shutdown(self, how: int) -> None:
        """SHUT_WR: no more to send. Else the end at once, also for a thread that waits in recv()."""
        if how == socket.SHUT_WR:
            self.channel.shutdown_write()
        else:
            self.channel.close()

    def close(self) -> None:
        self._closed = True
        self._release()

    def file_closed(self) -> None:
        self._files -= 1
        self._release()

    def _release(self) -> None:
        if self._closed and self._files <= 0:
            with contextlib.suppress(EOFError, OSError):
                self.channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ChannelReader(io.BufferedReader):
    """makefile("rb"); docker-py looks for *channel* to lift the time limit of a followed log."""

    def __init__(self, raw: _Raw, size: int) -> None:
        super().__init__(raw, size)
        self.channel = raw.sock


class _Raw(io.RawIOBase):
    def __init__(self, sock: ChannelSocket) -> None:
        self.sock = sock

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self.sock.recv(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            super().close()
            self.sock.file_closed()
