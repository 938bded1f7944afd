"""The heartbeat's socket, on the fabric address."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

from supervisor.beat import Beat, encode_beat
from supervisor.hearing import BEAT_S

if TYPE_CHECKING:
    from supervisor.hearing import Hearing, PeerView
    from supervisor.settings import Settings


def address_error(ip: str, port: int) -> str:
    """Why no UDP socket can be bound, `""` if one can; *port* 0 asks for the address alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, port))
        except OSError as error:
            what = f"UDP {ip}:{port}" if port else f"fabric address {ip}"
            return f"{what}: {error.strerror}"
    return ""


class Heartbeat:
    """Sends and hears beats on the fabric address in a thread of its own, whatever the rest is busy with."""

    def __init__(self, settings: Settings, hearing: Hearing, wake: threading.Event) -> None:
        self._settings = settings
        self._hearing = hearing
        self._wake = wake
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._said = Beat()
        self.token = b""
        self.error = "not yet tried"
        self._next_beat = self._next_check = 0.0

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, said: Beat) -> None:
        """From now on the peers are told this; at once, if the session or the phase is another."""
        with self._lock:
            before, self._said = self._said, said
            if (said.session, said.phase, said.ray) != (before.session, before.phase, before.ray):
                self._send()

    def view(self) -> dict[str, PeerView]:
        with self._lock:
            return self._hearing.view(time.monotonic())

    def ignored(self) -> dict[str, int]:
        with self._lock:
            return dict(self._hearing.ignored)

    def foreign_release(self) -> dict[str, str]:
        with self._lock:
            return dict(self._hearing.foreign_release)

    def _run(self) -> None:
        while True:
            self.turn()

    def turn(self) -> None:
        """Send if it is time, and take what comes until it is time again."""
        if self._socket is None:
            self._open()
        now = time.monotonic()
        if now >= self._next_check:
            self.error, self._next_check = self._check(), now + 2
        if now >= self._next_beat:
            self._next_beat = now + BEAT_S
            with self._lock:
                self._send()
        self._receive(max(0.01, self._next_beat - time.monotonic()))

    def close(self) -> None:
        if self._socket:
            self._socket.close()

    def _open(self) -> None:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.bind((self._settings.fabric_ip, self._settings.heartbeat_port))
        except OSError:
            opened.close()
        else:
            self._socket = opened

    def _check(self) -> str:
        ip = self._settings.fabric_ip
        return address_error(ip, 0 if self._socket else self._settings.heartbeat_port)

    def _send(self) -> None:
        if self._socket is None or not self.token:
            return
        self._hearing.tick(time.monotonic())
        for name, ip in self._settings.peers.items():
            beat = self._hearing.beat_for(name, self._said)
            with contextlib.suppress(OSError):  # no link: that is what the peer finds out by not hearing us
                datagram = encode_beat(beat, self._settings.deployment, self.token)
                self._socket.sendto(datagram, (ip, self._settings.heartbeat_port))

    def _receive(self, limit_s: float) -> None:
        if self._socket is None:
            time.sleep(limit_s)
            return
        self._socket.settimeout(limit_s)
        try:
            datagram, _ = self._socket.recvfrom(65535)
        except TimeoutError:
            return
        except OSError:  # ECONNREFUSED: the peer's supervisor is not there yet
            time.sleep(0.01)
            return
        with self._lock:
            taken = bool(self.token) and self._hearing.hear(datagram, self.token, time.monotonic())
        if taken:
            self._wake.set()
