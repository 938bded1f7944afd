"""Run one bash script on a node over an SSH channel, so that no process of it outlives the run."""

from __future__ import annotations

import secrets
import select
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from orchestrator.remote.host import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable

    import paramiko

# Of each stream, the first and the last half: more than the longest answer, 2 MiB of evidence in base64.
KEEP_BYTES = 4_000_000
MAX_SCRIPT_BYTES = 120_000  # Linux: one argument of a program is at most 128 KiB (MAX_ARG_STRLEN)
KILL_AFTER_S = 5  # from SIGTERM to SIGKILL
LINGER_S = 2  # for output that is still on its way when the script has ended
TIMED_OUT, CANCELLED = 124, 143

# Reads the script (so that no login shell has to quote it), then runs it with an empty stdin, under
# timeout(1), in a process group of its own. Our end of stdin is a leash: when it closes, because of
# cancel() or because sshd lost us, the group gets SIGTERM. What is left of the group when the script
# has ended (or what ignores SIGTERM) is killed. A script that came in only half is not run.
# One line, no single quotes, backslashes or exclamation marks: fish and csh are login shells, too.
WRAPPER = " ".join(
    (
        "exec 3<&0 4>&2 </dev/null 2>/dev/null;",
        'script=$(head -c "$2" <&3);',
        'case $script in *"$3") ;; *) exit 143 ;; esac;',
        'script=${script%"$3"};',
        "set -m;",
        f'timeout --kill-after={KILL_AFTER_S} "$1" bash -c "$script" 2>&4 3<&- 4>&- &',
        "job=$!;",
        "{ cat <&3; kill -TERM -- -$job; } >/dev/null 4>&- &",
        "leash=$!;",
        "wait $job; code=$?;",
        "kill -TERM -- -$job &&",
        "for i in 1 2 3 4 5 6 7 8 9 10; do kill -0 -- -$job || break; sleep 0.1; done;",
        "kill -KILL -- -$job;",
        "kill -KILL -- -$leash;",
        "exit $code",
    )
)


@dataclass(frozen=True)
class Probe:
    """What to do after each *every_s* of silence: *ask* returns when the node answers, or cuts the line."""

    every_s: float
    ask: Callable[[], None]


@dataclass(eq=False)
class Running:
    """A script on its way; another thread may cancel it."""

    cancelled: threading.Event = field(default_factory=threading.Event)
    channel: paramiko.Channel | None = None

    def cancel(self) -> None:
        """Let go of the leash: the node kills the script's whole process group."""
        self.cancelled.set()
        if self.channel is not None:
            self.channel.shutdown_write()


class LinkLostError(Exception):
    """The connection ended, or stayed silent beyond the limit, before the script did; says which."""


def run(
    channel: paramiko.Channel,
    script: str,
    running: Running,
    *,
    timeout_s: float,
    grace_s: float,
    on_line: Callable[[str], None] | None,
    probe: Probe,
) -> Outcome:
    """
    Run bash *script* on a fresh session *channel*; the script's standard input is empty.

    Raises:
        LinkLostError: no word from the node within *timeout_s* and *grace_s*, or no connection any more.
        ValueError: the script is longer than a command line can be, or holds a NUL.
    """
    payload, mark = _payload(script)
    deadline = time.monotonic() + timeout_s + grace_s
    channel.settimeout(grace_s)
    channel.exec_command(f"exec bash -c '{WRAPPER}' spark-deploy {timeout_s:g} {len(payload)} {mark}")
    channel.sendall(payload)
    running.channel = channel
    if running.cancelled.is_set():
        running.cancel()
    stdout, stderr = _Kept(on_line), _Kept(on_line)
    _drain(channel, stdout, stderr, _Patience(running, deadline, grace_s, probe))
    code = _exit_code(channel, grace_s)
    if running.cancelled.is_set():
        code = CANCELLED
    elif code == 137 and time.monotonic() >= deadline - grace_s:
        code = TIMED_OUT  # timeout(1) killed the group, and so itself
    return Outcome(code, stdout.text, stderr.text)


def _payload(script: str) -> tuple[bytes, str]:
    mark = f"end-{secrets.token_hex(8)}"
    payload = script.encode()
    if b"\0" in payload or len(payload) > MAX_SCRIPT_BYTES:
        raise ValueError(f"a script has no NUL and at most {MAX_SCRIPT_BYTES} bytes; files go with put()")
    return payload + mark.encode(), mark


class _Patience:
    """Decides at every turn whether to wait on for a script."""

    def __init__(self, running: Running, deadline: float, grace_s: float, probe: Probe) -> None:
        self._running = running
        self._deadline = deadline
        self._grace_s = grace_s
        self._probe = probe
        self._heard = time.monotonic()
        self._linger_until = float("inf")

    def heard(self) -> None:
        self._heard = time.monotonic()

    def goes_on(self, *, exited: bool) -> bool:
        """False: the script has ended, though its streams have not. Raises LinkLostError: no word in time."""
        now = time.monotonic()
        if exited:  # a daemon of the script may keep its streams open for ever
            self._linger_until = min(self._linger_until, now + LINGER_S)
        if self._running.cancelled.is_set():
            self._deadline = min(self._deadline, now + self._grace_s)
        if now >= self._deadline and not exited:
            raise LinkLostError("no word from the node in time")
        if now - self._heard >= self._probe.every_s:
            self._probe.ask()
            self.heard()
        return now < self._linger_until


def _drain(channel: paramiko.Channel, stdout: _Kept, stderr: _Kept, patience: _Patience) -> None:
    """Read both streams until they end."""
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    while True:
        ended = channel.eof_received or channel.closed
        while channel.recv_ready():
            stdout.feed(channel.recv(65536))
            patience.heard()
        while channel.recv_stderr_ready():
            stderr.feed(channel.recv_stderr(65536))
            patience.heard()
        if ended or not patience.goes_on(exited=channel.exit_status_ready()):
            break
        poll.poll(200)  # ms: also the time within which cancel() is seen
    stdout.finish()
    stderr.finish()


def _exit_code(channel: paramiko.Channel, grace_s: float) -> int:
    if not channel.status_event.wait(grace_s):
        raise LinkLostError("no exit code came")
    if channel.exit_status >= 0:
        return channel.exit_status
    transport = channel.get_transport()
    transport.join(1)  # paramiko closes the channels of a dead connection a moment before it says so
    if not transport.is_alive():
        raise LinkLostError("it ended while a script ran")
    return 137  # RFC 4254 exit-signal, which paramiko drops: somebody killed the wrapper on the node


class _Kept:
    """A stream's first and last KEEP_BYTES / 2, and its lines as they come."""

    def __init__(self, on_line: Callable[[str], None] | None) -> None:
        self._on_line = on_line
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0
        self._line = bytearray()

    def feed(self, data: bytes) -> None:
        room = KEEP_BYTES // 2 - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > KEEP_BYTES:
            surplus = len(self._tail) - KEEP_BYTES // 2
            del self._tail[:surplus]
            self._dropped += surplus
        if self._on_line:
            self._line += data
            *lines, rest = self._line.split(b"\n")
            self._line = rest[-65536:]
            for line in lines:
                self._on_line(line.decode(errors="replace"))

    def finish(self) -> None:
        if self._on_line and self._line:
            self._on_line(self._line.decode(errors="replace"))

    @property
    def text(self) -> str:
        gap = f"\n[… {self._dropped} bytes dropped …]\n".encode() if self._dropped else b""
        return (bytes(self._head) + gap + bytes(self._tail)).decode(errors="replace")
