"""
One node's share of a served model, and nothing half-alive beside it.

Main process of the container on every node, the same file everywhere, standard library only. It waits for the
fabric address and for its peers, starts `ray start`, on the head also `vllm serve`, watches them, and on any
failure on any node ends the session on all nodes, keeps the evidence, and starts again, a limited number of
times. It never exits because of its children. The first half of the file decides and touches nothing: it is
given what is seen and returns what to do. The second half touches the world. docs/supervision.md tells it all.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import json
import math
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
from collections import Counter, deque
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

SCHEMA = 1

# Limits that no inventory sets; sources in docs/supervision.md#limits.
BEAT_S = 0.25
FRESH_S = 2.0  # a peer heard this recently is here
MAX_DATAGRAM = 1000
RAY_START_LIMIT_S = 60.0
DROP_CACHE_LIMIT_S = 30.0
MEMBERS_LIMIT_S = 10.0
MEMBERS_EVERY_S = 3.0  # the child imports Ray: a second of CPU
HEALTH_EVERY_S = 1.0
WATCH_EVERY_S = 2.0
WATCH_LIMIT_S = 5.0
WATCH_ERRORS = 5
FIRST_PROBE_LIMIT_S = 600.0  # the first request compiles kernels
SETTLE_S = 1.0  # after vLLM ended: for its last lines, and for what a peer has to say
STUCK_CPU_S = 0.15  # seconds of CPU per second and node: below it nobody compiles (idle: 0.1)
STUCK_BYTES = 256 << 10  # bytes per second: below it nobody reads weights (idle: 43 kB)
MEMORY_WAIT_S = 60.0
CLEAN_LIMIT_S = 60.0
GRACE_S = 5.0  # a helper thread that is this late will not answer
TAIL_LINES = 20
EVIDENCE_LINES = 400
EVIDENCE_BYTES = 2_000_000
EVIDENCE_KEPT = 3
STATE_EVERY_S = 5.0


# ------------------------------------------------------------------------------------------------- settings


@dataclass(frozen=True)
class Limits:
    """Seconds, but for *attempts*; supervise.json may set each of them."""

    link_lost_s: float = 5
    peer_timeout_s: float = 60
    hang_s: float = 120
    probe_s: float = 60
    join_limit_s: float = 25
    attempts: int = 5
    healthy_s: float = 3600
    start_limit_s: float = 3600
    stuck_s: float = 600


@dataclass(frozen=True)
class Settings:
    """What supervise.json says: this node, its peers (name to fabric address), the API of the head."""

    deployment: str
    node: str
    role: str
    fabric_ip: str
    peers: Mapping[str, str]
    head_ip: str
    ray_port: int
    heartbeat_port: int
    api_host: str
    api_port: int
    served_name: str
    model: str
    transport: str
    limits: Limits

    @property
    def nodes(self) -> dict[str, str]:
        """Fabric address to node name, this node among them."""
        return {self.fabric_ip: self.node, **{ip: name for name, ip in self.peers.items()}}

    @property
    def head(self) -> str:
        return self.nodes[self.head_ip]


def parse_settings(text: str) -> Settings:
    """
    Read supervise.json; limits that it does not name keep their defaults.

    Raises:
        KeyError, TypeError, ValueError: it is not what `spark-deploy render` writes.
    """
    raw: dict[str, Any] = json.loads(text)
    known = {item.name for item in fields(Limits)}
    return Settings(
        deployment=raw["deployment"],
        node=raw["node"],
        role=raw["role"],
        fabric_ip=raw["fabric_ip"],
        peers={peer["node"]: peer["fabric_ip"] for peer in raw["peers"]},
        head_ip=raw["head_ip"],
        ray_port=raw["ray_port"],
        heartbeat_port=raw["heartbeat_port"],
        api_host=raw["api"]["host"],
        api_port=raw["api"]["port"],
        served_name=raw["served_name"],
        model=raw["model"],
        transport=raw["transport"],
        limits=Limits(**{key: value for key, value in raw.get("limits", {}).items() if key in known}),
    )


@dataclass(frozen=True)
class Desired:
    """What run/desired asks for; *run* names the `up` that wrote it."""

    down: bool = False
    run: str = ""


def parse_desired(text: str) -> Desired:
    """`up RUN` or `down`; anything else, and nothing, is up."""
    words = text.split()
    return Desired(down=words[:1] == ["down"], run=words[1] if words[:1] == ["up"] and len(words) > 1 else "")


def parse_secrets(text: str) -> dict[str, str]:
    """KEY=value lines; the value is everything after the first `=`."""
    lines = (line for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value for key, _, value in (line.partition("=") for line in lines)}


# ------------------------------------------------------------------------------------------------- heartbeat


@dataclass(frozen=True)
class Beat:
    """
    What one supervisor tells another, four times a second.

    *session* is the Ray cluster this node is in (`""`: none; a new one at every start of the head's Ray),
    *left* the last one it was in, which ended for *cause*. *heard* and *heard_counter* give back the
    receiver's own incarnation and the highest of its counters that got here: the proof of freshness.
    """

    node: str
    release: str = ""
    boot: str = ""
    incarnation: str = ""
    counter: int = 0
    session: str = ""
    ray: bool = False
    phase: str = ""
    left: str = ""
    cause: str = ""
    cause_node: str = ""
    lines: tuple[str, ...] = ()
    read_bytes: int = 0
    cpu_s: int = 0
    heard: str = ""
    heard_counter: int = 0


class IgnoredError(ValueError):
    """A datagram that changes nothing: oversized, forged, foreign, release, unknown, unheard or replayed."""

    def __init__(self, reason: str, *, node: str = "", release: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.node = node
        self.release = release


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def encode_beat(beat: Beat, deployment: str, token: bytes) -> bytes:
    """Give the datagram: 32 bytes of HMAC-SHA256, then JSON; log lines are dropped until it is small enough."""
    beat = replace(beat, cause=_cut(beat.cause, 240), lines=tuple(_cut(line, 200) for line in beat.lines))
    while True:
        values = {key: value for key, value in asdict(beat).items() if value}
        body = json.dumps(
            {"deployment": deployment, **values}, separators=(",", ":"), ensure_ascii=False
        ).encode()
        if len(body) + 32 <= MAX_DATAGRAM:
            return hmac.new(token, body, hashlib.sha256).digest() + body
        if not beat.lines and not beat.cause:
            raise ValueError(
                f"a beat without cause and lines has {len(body) + 32} bytes, wanted {MAX_DATAGRAM}"
            )
        shorter = beat.cause if beat.lines else _cut(beat.cause, len(beat.cause.encode()) // 2)
        beat = replace(beat, lines=beat.lines[1:], cause=shorter)


_BEAT_TYPES: dict[str, type] = {
    item.name: {"str": str, "bool": bool, "int": int, "tuple[str, ...]": tuple}[str(item.type)]
    for item in fields(Beat)
}


def decode_beat(datagram: bytes, deployment: str, token: bytes) -> Beat:
    """
    Give what an authentic datagram says; whether it is fresh, `Hearing` knows.

    Raises:
        IgnoredError: oversized, forged or foreign.
    """
    if len(datagram) > MAX_DATAGRAM:
        raise IgnoredError("oversized")
    mac, body = datagram[:32], datagram[32:]
    if not hmac.compare_digest(mac, hmac.new(token, body, hashlib.sha256).digest()):
        raise IgnoredError("forged")
    raw = json.loads(body)
    if raw.get("deployment") != deployment:
        raise IgnoredError("foreign")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in raw.items()}
    known: dict[str, Any] = {
        key: value for key, value in values.items() if isinstance(value, _BEAT_TYPES.get(key, ()))
    }
    known.setdefault("node", "")
    return Beat(**known)


@dataclass(frozen=True)
class PeerView:
    """A peer as last heard. *age_s* counts from our own beat that it has proved to have heard."""

    age_s: float = math.inf
    beat: Beat = field(default_factory=lambda: Beat(node=""))

    @property
    def here(self) -> bool:
        return self.age_s < FRESH_S


@dataclass
class _Ear:
    """Of one peer: whom to echo, and the last beat that was fresh."""

    echo: str = ""
    echo_counter: int = 0
    echo_at: float = -math.inf
    echo_verified: bool = False
    beat: Beat | None = None
    heard_at: float = -math.inf


class Hearing:
    """
    Who is there, by authenticated beats that cannot be replayed.

    A beat is as fresh as the beat of ours that it gives back: one recorded earlier gives back an old counter
    or another incarnation and changes nothing, and a link that carries only one direction counts as silent
    on both ends. Times are the caller's monotonic seconds.
    """

    def __init__(self, settings: Settings, release: str, incarnation: str) -> None:
        self.settings = settings
        self.release = release
        self.incarnation = incarnation
        self.ignored: Counter[str] = Counter()
        self.foreign_release: dict[str, str] = {}
        self._ears = {name: _Ear() for name in settings.peers}
        self._sent: deque[float] = deque(maxlen=4096)
        self._counter = 0

    def tick(self, now: float) -> None:
        """Begin a new round of beats."""
        self._counter += 1
        self._sent.append(now)

    def beat_for(self, peer: str, said: Beat) -> Beat:
        ear = self._ears[peer]
        return replace(
            said,
            node=self.settings.node,
            release=self.release,
            incarnation=self.incarnation,
            counter=self._counter,
            heard=ear.echo,
            heard_counter=ear.echo_counter,
        )

    def hear(self, datagram: bytes, token: bytes, now: float) -> bool:
        """Take a datagram; False, and counted, if it changes nothing."""
        try:
            beat = decode_beat(datagram, self.settings.deployment, token)
            self._take(beat, now)
        except IgnoredError as ignored:
            self.ignored[ignored.reason] += 1
            return False
        except (ValueError, AttributeError, RecursionError):
            self.ignored["foreign"] += 1
            return False
        return True

    def view(self, now: float) -> dict[str, PeerView]:
        return {
            name: PeerView(age_s=now - ear.heard_at, beat=ear.beat) if ear.beat else PeerView()
            for name, ear in self._ears.items()
        }

    def _take(self, beat: Beat, now: float) -> None:
        ear = self._ears.get(beat.node)
        if ear is None:
            raise IgnoredError("unknown")
        if beat.release != self.release:
            self.foreign_release[beat.node] = beat.release
            raise IgnoredError("release")
        self._note_echo(ear, beat, now)
        sent_at = self._sent_at(beat)
        self._refuse_replay(ear, beat)
        if beat.incarnation == ear.echo:
            ear.echo_verified = True
        self.foreign_release.pop(beat.node, None)
        ear.beat, ear.heard_at = beat, sent_at

    @staticmethod
    def _note_echo(ear: _Ear, beat: Beat, now: float) -> None:
        """Give back the newest counter; another incarnation only when the proved one is silent."""
        if beat.incarnation == ear.echo:
            ear.echo_at = now if beat.counter > ear.echo_counter else ear.echo_at
            ear.echo_counter = max(ear.echo_counter, beat.counter)
        elif not ear.echo_verified or now - ear.echo_at > 2 * BEAT_S:
            ear.echo, ear.echo_counter = beat.incarnation, beat.counter
            ear.echo_at, ear.echo_verified = now, False

    def _sent_at(self, beat: Beat) -> float:
        index = beat.heard_counter - (self._counter - len(self._sent)) - 1
        if beat.heard != self.incarnation or not 0 <= index < len(self._sent):
            raise IgnoredError("unheard")
        return self._sent[index]

    @staticmethod
    def _refuse_replay(ear: _Ear, beat: Beat) -> None:
        if ear.beat is None:
            return
        same = beat.incarnation == ear.beat.incarnation
        older = beat.heard_counter < ear.beat.heard_counter or (same and beat.counter <= ear.beat.counter)
        if older or (not same and beat.heard_counter == ear.beat.heard_counter):
            raise IgnoredError("replayed")


# ------------------------------------------------------------------------------------------------- logs

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_PREFIX = re.compile(r"^(?:\([^()]*(?:pid=|raylet)[^()]*\)\s*)+")
_LEVEL = re.compile(r"^(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?")


def plain(line: str) -> str:
    """*line* without the colours that Ray prints even with NO_COLOR=1."""
    return _ANSI.sub("", line).rstrip()


def message(line: str) -> str:
    """*line* without `(EngineCore pid=1) ERROR 11-30 19:39:09 [core.py:1510] `."""
    return _LEVEL.sub("", _PREFIX.sub("", plain(line)))


# Stage, pattern, text. Stages only go forward: the other rank's lines come late and out of order.
_PROGRESS: tuple[tuple[int, re.Pattern[str], str], ...] = (
    (1, re.compile(r"[█▀▄] +version \d|vLLM (?:API )?server version"), "vllm starting"),
    (2, re.compile(r"Initializing a V1 LLM engine"), "engine starting"),
    (2, re.compile(r"Waiting for creating a placement group"), "waiting for the GPUs in Ray"),
    (
        3,
        re.compile(r"world_size=\d+ rank=\d+|NCCL INFO .*\bInit START|vLLM is using nccl"),
        "ranks connecting",
    ),
    (4, re.compile(r"Starting to load model"), "loading weights"),
    (4, re.compile(r"[Ll]oading .*?\d+% Completed \| (\d+)/(\d+)"), "weights {0}/{1}"),
    (5, re.compile(r"Loading weights took|Model loading took"), "weights loaded"),
    (6, re.compile(r"Dynamo bytecode|Compiling a graph|Warming up model for the compilation"), "compiling"),
    (6, re.compile(r"torch\.compile (?:took|takes)"), "compiled"),
    (7, re.compile(r"Profiling CUDA graph memory|Initial profiling"), "profiling memory"),
    (7, re.compile(r"(?:GPU|CPU) KV cache size|Available KV cache memory"), "KV cache"),
    (8, re.compile(r"Running FlashInfer autotune|Autotuning|autotuner"), "autotuning kernels"),
    (8, re.compile(r"Warming up "), "warming up kernels"),
    (9, re.compile(r"Capturing CUDA graphs.*?(\d+)%"), "capturing graphs {0}%"),
    (10, re.compile(r"Graph capturing finished"), "graphs captured"),
    (11, re.compile(r"init engine \(profile"), "engine ready"),
    (12, re.compile(r"Starting vLLM server on|Application startup complete"), "API starting"),
)


@dataclass(frozen=True, order=True)
class Progress:
    """How far the start of `vllm serve` is: the stage, the part of it that is done (0 to 1), and in words."""

    stage: int = 0
    part: float = 0
    text: str = field(default="", compare=False)


def parse_progress(line: str) -> Progress | None:
    """None: the line does not say."""
    text = plain(line)
    for stage, pattern, words in _PROGRESS:
        if match := pattern.search(text):
            numbers = [int(number) for number in match.groups()]
            part = numbers[0] / (numbers[1:] or [100])[0] if numbers and numbers[-1] else 0.0
            return Progress(stage, part, words.format(*numbers))
    return None


# The verdict lines only: `NET/IB : No device found.` may be followed by NET/IB, and a plugin that is
# merely loaded carries nothing.
_TRANSPORTS = (
    ("NET/Socket", re.compile(r"Using network Socket|via NET/Socket/")),
    ("NET/IB", re.compile(r"Using network IB|via NET/IB(?:ext\w*)?/")),
    ("gloo", re.compile(r"\bbackend=gloo\b")),
)


def parse_transport(line: str) -> str:
    """Give `NET/IB`, `NET/Socket` or `gloo` if the line proves it, else ``""``."""
    return next((name for name, pattern in _TRANSPORTS if pattern.search(line)), "")


_EXCEPTION = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt|Timeout)(?:\([\w.]+\))?(?::|$)")
_GOES_ON = re.compile(r"validation errors? for \w+$")  # pydantic says what is wrong on the next line
_USAGE = re.compile(r"^(?:vllm|api_server\.py|ray)[\w ]*: error: |^Error: ")
_SECONDARY = re.compile(
    r"Engine core initialization failed|ActorHandleNotFoundError|^RuntimeError: cancelled|EngineDeadError"
    r"|CancelledError|KeyboardInterrupt|SystemExit|WrongClusterID"
)
_RANK_ERROR = re.compile(r"RayTaskError\(.*ip=([\d.]+)")
_WORKER_DIED = re.compile(r"A worker died or was killed.*?Worker IP address: ([\d.]+)")
_NODE_DEAD = re.compile(r"address: ([\d.]+) .*has been marked dead")
_DIED = re.compile(
    r"RayWorkerProc rank=\[[\d, ]+\] died unexpectedly|EngineCore encountered a fatal error"
    r"|engine core exited unexpectedly|\w+ \[exit code=-?\d+\]"
)
_QUOTE_BEGINS = re.compile(r"----- BEGIN .* tail")  # Ray quotes pages of its own logs: evidence has them
_QUOTE_ENDS = re.compile(r"----- END .* tail")


class EngineLog:
    """
    What the lines of one child say: how far it is, over what transport, and why it ended.

    The last lines of a failed start are secondary. The cause is the last line of the first
    `EngineCore failed to start` traceback; then what Ray says of a dead worker; then the last exception.
    """

    def __init__(self) -> None:
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self.progress = Progress()
        self.transport = ""
        self.ip = ""  # of the node where it went wrong, if the log names one
        self._root = ""
        self._in_root = False
        self._notes: list[str] = []
        self._exception = ""
        self._last = ""
        self._in_quote = False

    def feed(self, line: str) -> bool:
        """Take one line; True if it tells of progress."""
        line = plain(line)
        self._in_quote = self._in_quote and not _QUOTE_ENDS.search(line)
        if not line or self._in_quote:
            return False
        self._in_quote = bool(_QUOTE_BEGINS.search(line))
        self.tail.append(line)
        self._feed_transport(line)
        self._feed_cause(line)
        return self._feed_progress(line)

    @property
    def cause(self) -> str:
        return self._root or (self._notes[0] if self._notes else "") or self._exception

    def _feed_progress(self, line: str) -> bool:
        found = parse_progress(line)
        if found and found >= self.progress:
            self.progress = found
        return found is not None

    def _feed_transport(self, line: str) -> None:
        order = [name for name, _ in _TRANSPORTS]
        found = parse_transport(line)
        if found and (not self.transport or order.index(found) < order.index(self.transport)):
            self.transport = found

    def _feed_cause(self, line: str) -> None:
        text = message(line)
        if "EngineCore failed to start" in text and not self._root:
            self._in_root = True
        elif self._in_root:
            self._feed_root(line, text)
        self._feed_notes(text)
        if (_EXCEPTION.match(text) or _USAGE.match(text)) and not _SECONDARY.search(text):
            self._exception = text
        elif self._last == self._exception and _GOES_ON.search(self._last):
            self._exception = f"{self._last}: {text.strip()}"
        self._last = text

    def _feed_root(self, line: str, text: str) -> None:
        if text.startswith("Process EngineCore"):
            self._in_root = False
        elif not re.search(r"\[core\.py:\d+\]", line):
            return  # another process speaks in between
        elif _EXCEPTION.match(text):
            self._root = text
            if match := _RANK_ERROR.search(text):
                self.ip = match.group(1)
        elif _GOES_ON.search(self._root) and text.strip():
            self._root = f"{self._root}: {text.strip()}"

    def _feed_notes(self, text: str) -> None:
        if match := _WORKER_DIED.search(text):
            self._notes.insert(0, f"a process of the engine died or was killed on {match.group(1)}")
            self.ip = self.ip or match.group(1)
        elif match := _NODE_DEAD.search(text):
            self._notes.append(f"Ray marked {match.group(1)} dead")
            self.ip = self.ip or match.group(1)
        elif match := _DIED.search(text):
            self._notes.append(match.group(0))


# ------------------------------------------------------------------------------------------------- watching


@dataclass(frozen=True)
class Counters:
    """Of vLLM's /metrics: requests in work, and engine steps since the start."""

    requests: float
    steps: float


def parse_metrics(text: str) -> Counters | None:
    """None: this engine does not count its steps."""
    sums: Counter[str] = Counter()
    for line in text.splitlines():
        name, _, rest = line.partition("{" if "{" in line else " ")
        if name.startswith("vllm:"):
            with contextlib.suppress(ValueError, IndexError):
                sums[name] += float(rest.split()[-1])  # type: ignore[assignment]  # a Counter of floats
    if "vllm:iteration_tokens_total_count" not in sums:
        return None
    steps = sums["vllm:iteration_tokens_total_count"] + sums["vllm:generation_tokens_total"]
    return Counters(
        requests=sums["vllm:num_requests_running"] + sums["vllm:num_requests_waiting"], steps=steps
    )


@dataclass(frozen=True)
class Activity:
    """Bytes read and seconds of CPU by everything in the containers, since their supervisors began."""

    read_bytes: float = 0
    cpu_s: float = 0


class Stillness:
    """Tells when a start does nothing: no progress line, no bytes read, no CPU used on any node."""

    def __init__(self, now: float, limit_s: float, *, nodes: int) -> None:
        self._limit_s = limit_s
        self._cpu_s = STUCK_CPU_S * nodes
        self._since = now
        self._at_since: Activity | None = None

    def moved(self, now: float) -> None:
        self._since, self._at_since = now, None

    def stuck(self, now: float, activity: Activity) -> bool:
        if self._at_since is None:
            self._at_since = activity
        span = now - self._since
        if span < self._limit_s:
            return False
        used = activity.cpu_s - self._at_since.cpu_s
        read = activity.read_bytes - self._at_since.read_bytes
        if used >= self._cpu_s * span or read >= STUCK_BYTES * span:
            self.moved(now)
            return False
        return True


class MemoryWait:
    """After a failed attempt: memory comes back late, wait until MemAvailable stops rising, 60 s at most."""

    def __init__(self, now: float) -> None:
        self._until = now + MEMORY_WAIT_S
        self._highest = 0
        self._rose_at = now

    def over(self, now: float, available_kb: int) -> bool:
        if available_kb > self._highest * 1.01:
            self._highest, self._rose_at = available_kb, now
        return now >= self._until or now - self._rose_at >= 1.5


# ------------------------------------------------------------------------------------------------- attempts


@dataclass(frozen=True)
class Failure:
    """Why an attempt ended. A *peer_lost* one is given back: the node, not the release, was at fault."""

    cause: str
    node: str = ""
    lines: tuple[str, ...] = ()
    peer_lost: bool = False


@dataclass(frozen=True)
class Attempts:
    """
    How often this release has been started, over restarts of the container (run/attempts.json).

    Until it has once been ready there is one attempt; afterwards as many as the limits say without an hour
    of health in between. A new `up` begins anew; so does a new boot, except for *ready_once*. *open* is true
    while a session lasts: found so at the start of a container, the one before was killed.
    """

    release: str = ""
    boot_id: str = ""
    run: str = ""
    count: int = 0
    ready_once: bool = False
    gave_up: bool = False
    open: bool = False
    cause: str = ""
    cause_node: str = ""
    last_lines: tuple[str, ...] = ()

    def limit(self, limits: Limits) -> int:
        return limits.attempts if self.ready_once else 1

    def resumed(self, *, release: str, boot_id: str, node: str) -> Attempts:
        """What an earlier container's count is worth to this one, on *node*."""
        if self.release != release:
            return Attempts(release=release, boot_id=boot_id)
        rebooted = self.boot_id != boot_id
        kept = replace(self, boot_id=boot_id, count=0, gave_up=False) if rebooted else self
        if not self.open:
            return kept
        cause = f"{node} was rebooted" if rebooted else f"{node}'s container was killed"
        return replace(kept, open=False, cause=cause, cause_node=node, last_lines=())

    def asked_anew(self, run: str, *, count: int, ready: bool) -> Attempts:
        fresh = Attempts(run=run, count=count, ready_once=ready)
        return replace(fresh, release=self.release, boot_id=self.boot_id, open=self.open)

    def started(self) -> Attempts:
        return replace(self, count=self.count + 1, open=True)

    def given_back(self) -> Attempts:
        return replace(self, count=max(0, self.count - 1))

    def ready(self) -> Attempts:
        """The first readiness ends the trial: what comes after counts from nought."""
        return replace(self, ready_once=True, count=self.count if self.ready_once else 0)

    def failed(self, failure: Failure) -> Attempts:
        kept = self.given_back() if failure.peer_lost and self.ready_once else self
        return replace(
            kept, open=False, cause=failure.cause, cause_node=failure.node, last_lines=failure.lines
        )


def parse_attempts(text: str) -> Attempts:
    """A file that cannot be read counts nothing: the worst is one budget more."""
    try:
        raw = json.loads(text)
        known = {item.name for item in fields(Attempts)}
        values = {key: value for key, value in raw.items() if key in known}
        return Attempts(**{**values, "last_lines": tuple(values.get("last_lines", ()))})
    except (ValueError, TypeError, AttributeError):
        return Attempts()


def backoff_s(in_vain: int) -> float:
    """Seconds before the next start, after so many in a row that did not get ready."""
    return float(min(30, 2 ** max(1, in_vain)))


# ------------------------------------------------------------------------------------------------- the machine

Question = Literal["port", "members", "health", "watch", "probe", "cache", "clean"]


@dataclass(frozen=True)
class Ask:
    """Find something out in a thread of its own; the `Answer` with this *number* comes in a later step."""

    number: int
    question: Question
    limit_s: float


@dataclass(frozen=True)
class Answer:
    number: int
    question: Question
    value: Any = None
    error: str = ""


@dataclass(frozen=True)
class Clean:
    """Keep the evidence if there is a *failure*, end every other process of the container, empty its folders."""

    number: int
    failure: Failure | None


@dataclass(frozen=True)
class StartRay:
    session: str


@dataclass(frozen=True)
class StartEngine:
    session: str


@dataclass(frozen=True)
class SaveAttempts:
    attempts: Attempts


Effect = Ask | Clean | StartRay | StartEngine | SaveAttempts


@dataclass(frozen=True)
class Watch:
    """One look at a serving engine: the status of /health, and /metrics where there is one."""

    health: int
    counters: Counters | None = None


@dataclass(frozen=True)
class Seen:
    """What the world looks like in one step."""

    desired: Desired = field(default_factory=Desired)
    token: bool = True
    address_error: str = ""  # why the heartbeat's socket is not there
    peers: Mapping[str, PeerView] = field(default_factory=dict)
    foreign_release: Mapping[str, str] = field(default_factory=dict)
    exits: Mapping[str, int] = field(default_factory=dict)  # child name to exit code
    lines: tuple[tuple[str, str], ...] = ()  # child name, line
    answers: tuple[Answer, ...] = ()
    activity: Activity = field(default_factory=Activity)
    available_kb: int = 0


class Machine:
    """
    What both roles share: booting, waiting for the address, cleaning, being down, the attempts.

    `step` is given the time and what is seen, changes this object, and returns what is to be done. It reads no
    clock and touches nothing else. A question has an answer in a later step, or counts as failed.
    """

    waiting = "waiting-peers"  # the phase that follows once the address is there

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.attempts = attempts
        self.incarnation = incarnation
        self.phase = "booting"
        self.progress = ""
        self.session = ""
        self.left = ""  # the last session this node was in
        self.cause = attempts.cause
        self.cause_node = attempts.cause_node
        self.last_lines = attempts.last_lines
        self.missing: tuple[str, ...] = ()
        self.members: tuple[str, ...] = ()
        self.silent: tuple[str, ...] = ()  # peers not heard for link_lost_s, in a session
        self.verifying = False  # they are heard again, and the engine has not yet proved that it lives
        self.logs = {"ray": EngineLog(), "vllm": EngineLog()}
        self.moved = False  # a log line of this step has shown progress
        self.now = 0.0
        self.seen = Seen()
        self._effects: list[Effect] = []
        self._number = 0
        self._asked: dict[Question, tuple[int, float]] = {}
        self._answers: dict[Question, Answer] = {}
        self._incarnations: dict[str, str] = {}
        self._boots: dict[str, str] = {}
        self._resume_at = 0.0
        self._memory = MemoryWait(0.0)
        self._booted = False
        self._in_vain = attempts.count  # starts in a row that did not get ready
        self._handlers: dict[str, Callable[[], None]] = {
            "booting": self._booting,
            "waiting-address": self._waiting_address,
            "failed": self._cleaning,
            "backing-off": self._backing_off,
            "gave-up": self._gave_up,
            "down": self._down,
        }

    def step(self, now: float, seen: Seen) -> list[Effect]:
        self.now, self.seen, self._effects = now, seen, []
        self._read_lines()
        self._take_answers()
        self._obey()
        self._handlers[self.phase]()
        return self._effects

    @property
    def shown(self) -> str:
        return "link-lost" if self.silent or self.verifying else self.phase

    @property
    def transport(self) -> str:
        return self.logs["vllm"].transport

    def said(self) -> Beat:
        """What the peers are told; who says it and the proof of freshness are added by `Hearing`."""
        return Beat(
            node=self.settings.node,
            session=self.session,
            phase=self.shown,
            left=self.left,
            cause=self.cause,
            cause_node=self.cause_node,
        )

    def crashed(self, error: str) -> list[Effect]:
        """Treat a bug of our own as a failed attempt."""
        self._effects = []
        self._fail(Failure(f"internal error of the supervisor: {error}", self.settings.node))
        return self._effects

    def stopped(self) -> list[Effect]:
        """The container is stopped by its engine or an operator: what it was in the middle of costs nothing."""
        self._effects = []
        self._told("to stop its container")
        self.left = self.session or self.left
        self.session, self.silent, self.verifying = "", (), False
        self._enter("down", "the container was told to stop")
        return self._effects

    # -- asking

    def _ask(self, question: Question, limit_s: float) -> None:
        if question in self._asked or question in self._answers:
            return
        self._number += 1
        self._asked[question] = (self._number, self.now + limit_s + GRACE_S)
        self._effects.append(Ask(self._number, question, limit_s))

    def _answer(self, question: Question) -> Answer | None:
        return self._answers.pop(question, None)

    def _take_answers(self) -> None:
        for answer in self.seen.answers:
            if self._asked.get(answer.question, (0, 0.0))[0] == answer.number:
                del self._asked[answer.question]
                self._answers[answer.question] = answer
        for question, (number, deadline) in list(self._asked.items()):
            if self.now > deadline:
                del self._asked[question]
                self._answers[question] = Answer(number, question, error="TimeoutError: nothing heard")

    def _read_lines(self) -> None:
        self.moved = False
        for source, line in self.seen.lines:
            self.moved |= self.logs[source].feed(line)

    # -- moving

    def _enter(self, phase: str, progress: str = "") -> None:
        self.phase, self.progress = phase, progress

    def _keep(self, attempts: Attempts) -> None:
        if attempts != self.attempts:
            self.attempts = attempts
            self._effects.append(SaveAttempts(attempts))

    def _clean(self, failure: Failure | None) -> None:
        self._asked.clear()
        self._answers.clear()
        self.left = self.session or self.left
        self.session, self.silent, self.verifying = "", (), False
        self.members, self.missing = (), ()
        self._keep(replace(self.attempts, open=False))
        self._number += 1
        self._asked["clean"] = (self._number, self.now + CLEAN_LIMIT_S)
        self._effects.append(Clean(self._number, failure))

    def _fail(self, failure: Failure) -> None:
        self.cause, self.cause_node, self.last_lines = failure.cause, failure.node, failure.lines
        self._keep(self.attempts.failed(failure))
        self._resume_at = self.now + backoff_s(self._in_vain)
        self._clean(failure)
        self._enter("failed", failure.cause)

    def _obey(self) -> None:
        desired = self.seen.desired
        if desired.down and self.phase not in ("down", "booting"):
            self._told("to go down")
            self._clean(None)
            self._enter("down")
        if desired.run and desired.run != self.attempts.run:
            self._asked_anew(desired.run)

    def _told(self, what: str) -> None:
        """A session that ends because somebody wants it to: the peers are told so."""
        if self.session:
            failure = Failure(f"{self.settings.node} was told {what}", self.settings.node)
            self.cause, self.cause_node, self.last_lines = failure.cause, failure.node, ()
            serving = self.phase in ("serving", "suspect")
            self._keep((self.attempts if serving else self.attempts.given_back()).failed(failure))

    def _asked_anew(self, run: str) -> None:
        ready = self.phase in ("serving", "suspect")
        self._keep(self.attempts.asked_anew(run, count=1 if self.session and not ready else 0, ready=ready))
        self.cause, self.cause_node, self.last_lines = "", "", ()
        self._resume_at = self.now

    # -- phases

    def _booting(self) -> None:
        if not self._booted:
            self._booted = True
            self._clean(None)
        elif "clean" in self._asked:
            return
        elif not self.seen.token:
            self.progress = "run/secrets.env has no SPARK_DEPLOY_TOKEN"
        else:
            self._answers.clear()
            self._resume()

    def _resume(self) -> None:
        """Go on after the container has been started: as decided before, if it was."""
        if self.seen.desired.down:
            self._enter("down")
        elif self.attempts.gave_up:
            self._enter("gave-up", self.cause)
        elif self.attempts.count >= self.attempts.limit(self.limits):
            self._give_up(self.cause or "the last attempt did not get ready")
        else:
            self._waiting_address()

    def _waiting_address(self) -> None:
        error = self.seen.address_error
        self._enter("waiting-address" if error else self.waiting, error)

    def _cleaning(self) -> None:
        if self._answer("clean") is not None:
            self._after_clean()

    def _after_clean(self) -> None:
        if self.attempts.count >= self.attempts.limit(self.limits):
            self._give_up(self.cause)
            return
        self._back_off()

    def _give_up(self, cause: str) -> None:
        self.cause = cause
        self._keep(replace(self.attempts, gave_up=True, cause=cause))
        self._enter("gave-up", cause)

    def _back_off(self) -> None:
        self._memory = MemoryWait(self.now)
        self._enter("backing-off", self.cause)

    def _backing_off(self) -> None:
        if self._memory.over(self.now, self.seen.available_kb) and self.now >= self._resume_at:
            self._waiting_address()

    def _gave_up(self) -> None:
        if not self.attempts.gave_up:
            self._waiting_address()

    def _down(self) -> None:
        if "clean" in self._asked:
            return
        self._answers.clear()
        if not self.seen.desired.down:
            self._resume()

    # -- sessions

    def _remember_peers(self) -> None:
        self._incarnations = {name: view.beat.incarnation for name, view in self.seen.peers.items()}
        self._boots = {name: view.beat.boot for name, view in self.seen.peers.items()}

    def _lost_peer(self, name: str) -> Failure | None:
        """The peer is silent for too long, or is not the one that the session began with."""
        view = self.seen.peers[name]
        if view.age_s > self.limits.peer_timeout_s:
            return Failure(
                f"nothing heard from {name} for {self.limits.peer_timeout_s:.0f} s", name, peer_lost=True
            )
        if view.beat.incarnation != self._incarnations[name]:
            rebooted = view.beat.boot != self._boots[name]
            what = "was rebooted" if rebooted else "restarted its container"
            return Failure(f"{name} {what}", name, peer_lost=rebooted)
        return None

    def _look_at_link(self) -> None:
        """Show a silence, and when it began; nothing is killed for it."""
        self.silent = tuple(
            name for name, view in self.seen.peers.items() if view.age_s > self.limits.link_lost_s
        )
        if self.silent:
            self.progress = f"nothing heard from {', '.join(self.silent)}"

    def _ray_failure(self) -> Failure | None:
        if "ray" not in self.seen.exits:
            return None
        log = self.logs["ray"]
        why = f"ray exited with {self.seen.exits['ray']}" + (f": {log.cause}" if log.cause else "")
        return Failure(why, self.settings.node, tuple(log.tail))


class HeadMachine(Machine):
    """The head: its Ray, the verified join, `vllm serve`, readiness, health."""

    waiting = "waiting-peers"

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        super().__init__(settings, attempts, incarnation)
        self.gcs_up = False
        self._sessions = 0
        self._began = 0.0  # the session, then the join, then the engine
        self._joined: set[str] = set()
        self._cache_dropped = False
        self._ending = ""  # what was seen of vLLM's end, and when
        self._ended_at = 0.0
        self._next_look = 0.0
        self._errors = 0
        self._stillness = self._new_stillness()
        self._counters: Counters | None = None
        self._proved_at = 0.0  # the engine's last step that we know of
        self._patient_since = (
            0.0  # no doubt for hang_s from here either: a new request, a link that came back
        )
        self._probed_at = 0.0
        self._healthy_since = 0.0
        self._linked_steps: float | None = None  # the engine's steps when the link came back
        self._problem = members_problem(settings, [])
        self._handlers |= {
            "waiting-peers": self._waiting_peers,
            "starting-ray": lambda: self._in_session(self._starting_ray),
            "joining": lambda: self._in_session(self._joining),
            "starting-engine": lambda: self._in_session(self._starting_engine),
            "probing": lambda: self._in_session(self._probing),
            "serving": lambda: self._in_session(self._serving),
            "suspect": lambda: self._in_session(self._suspect),
        }

    def said(self) -> Beat:
        return replace(super().said(), session=self.session if self.gcs_up else "", ray=self.gcs_up)

    def _clean(self, failure: Failure | None) -> None:
        self.gcs_up = False
        super()._clean(failure)

    # -- waiting

    def _waiting_peers(self) -> None:
        if self.seen.address_error:
            self._waiting_address()
            return
        waits = {name: self._why_not(name) for name in self.settings.peers}
        self.missing = tuple(name for name, why in waits.items() if why)
        self.progress = "waiting for " + ", ".join(f"{name} ({why})" for name, why in waits.items() if why)
        if not self.missing:
            self._begin()

    def _why_not(self, name: str) -> str:
        view = self.seen.peers.get(name, PeerView())
        if name in self.seen.foreign_release:
            return f"runs release {self.seen.foreign_release[name]}"
        if not view.here:
            return "not heard"
        if view.beat.phase != "waiting-head":
            return view.beat.phase or "no phase"
        return ""

    def _begin(self) -> None:
        self._keep(self.attempts.started())
        self._in_vain += 1
        self._sessions += 1
        self.session = f"{self.incarnation}-{self._sessions}"
        self.logs = {"ray": EngineLog(), "vllm": EngineLog()}
        self._began, self._joined, self._ending, self._errors = self.now, set(), "", 0
        self._cache_dropped, self._linked_steps, self._counters = False, None, None
        self._problem = members_problem(self.settings, [])
        self._remember_peers()
        self._effects.append(StartRay(self.session))
        self._ask("cache", DROP_CACHE_LIMIT_S)
        self._enter("starting-ray")

    # -- a session

    def _in_session(self, handler: Callable[[], None]) -> None:
        failure = self._session_failure()
        if failure:
            self._fail(failure)
            return
        was_silent = self.silent
        self._look_at_link()
        if self.silent:
            self.verifying = False
        elif was_silent:
            self._link_is_back(was_silent)
        handler()

    def _session_failure(self) -> Failure | None:
        for name in self.settings.peers:
            if failure := self._lost_peer(name) or self._left(name):
                return failure
        return self._ray_failure() or self._engine_failure() or self._wrong_transport()

    def _left(self, name: str) -> Failure | None:
        beat = self.seen.peers[name].beat
        if beat.session == self.session:
            self._joined.add(name)
        elif beat.left == self.session:
            return Failure(beat.cause, beat.cause_node or name, beat.lines)
        elif name in self._joined:
            return Failure(f"{name} left the session: it is {beat.phase}", name, beat.lines)
        return None

    def _engine_failure(self) -> Failure | None:
        """Any exit is one, 0 too; after a moment for its last lines, and for a peer to say why."""
        if "vllm" in self.seen.exits:
            self._note_end(f"vllm exited with {self.seen.exits['vllm']}")
        if not self._ending or self.now < self._ended_at + SETTLE_S:
            return None
        return self._of_engine(self._ending, self.settings.node)

    def _note_end(self, what: str) -> None:
        if not self._ending:
            self._ending, self._ended_at = what, self.now

    def _of_engine(self, what: str, node: str = "") -> Failure:
        """*what* happened, why by the engine's own log, where if that is known, and the last lines of all."""
        log, nodes = self.logs["vllm"], self.settings.nodes
        why = log.cause
        for ip, name in nodes.items():
            why = re.sub(rf"(?<![\d.]){re.escape(ip)}(?![\d.])", f"{name} ({ip})", why)
        lines = [*self._lines_of_peers(), *log.tail]
        return Failure(f"{what}: {why}" if why else what, nodes.get(log.ip, node), tuple(lines))

    def _lines_of_peers(self) -> list[str]:
        return [f"[{name}] {line}" for name, view in self.seen.peers.items() for line in view.beat.lines]

    def _wrong_transport(self) -> Failure | None:
        if self.settings.transport != "rdma" or self.transport != "NET/Socket":
            return None
        return self._of_engine(
            "transport is NET/Socket (TCP), wanted NET/IB (RDMA): see /dev/infiniband, memlock, hcas"
        )

    def _link_is_back(self, names: tuple[str, ...]) -> None:
        self.progress = f"{', '.join(names)} heard again"
        if self.phase in ("serving", "suspect"):
            self._linked_steps = self._counters.steps if self._counters else None
            self.verifying = True
            self.phase = "serving"
            self._asked.pop("probe", None)
            self._probe()

    # -- phases of a session

    def _starting_ray(self) -> None:
        self._note_cache()
        answer = self._answer("port")
        if answer and answer.value:
            self.gcs_up, self._began, self._next_look = True, self.now, self.now + MEMBERS_EVERY_S
            self._enter("joining")
        elif self.now - self._began > RAY_START_LIMIT_S:
            where = f"{self.settings.head_ip}:{self.settings.ray_port}"
            lines = tuple(self.logs["ray"].tail)
            self._fail(
                Failure(
                    f"Ray does not listen on {where} after {RAY_START_LIMIT_S:.0f} s",
                    self.settings.node,
                    lines,
                )
            )
        else:
            self._ask("port", 1.0)

    def _note_cache(self) -> None:
        self._cache_dropped |= self._answer("cache") is not None

    def _joining(self) -> None:
        self._note_cache()
        if answer := self._answer("members"):
            self._note_members(answer)
        if self.members and not self._problem.text:
            self._start_engine_when_cache_is_dropped()
        elif self._problem.hopeless or self.now - self._began > self.limits.join_limit_s:
            self._fail(self._not_joined())
        elif self.now >= self._next_look or all(view.beat.ray for view in self.seen.peers.values()):
            self._ask("members", MEMBERS_LIMIT_S)

    def _note_members(self, answer: Answer) -> None:
        members: list[tuple[str, float]] = answer.value or []
        self._next_look = self.now + MEMBERS_EVERY_S
        self._problem = members_problem(self.settings, members)
        self.members, self.missing = tuple(ip for ip, _ in members), self._problem.missing
        self.progress = answer.error or f"waiting for {', '.join(self.missing)}"

    def _not_joined(self) -> Failure:
        missing = self._problem.missing
        node = missing[0] if missing else self.settings.node
        limit = "" if self._problem.hopeless else f" in {self.limits.join_limit_s:.0f} s"
        own = tuple(self.logs["ray"].tail)
        lines = self.seen.peers[node].beat.lines if node in self.seen.peers else own
        return Failure(f"{self._problem.text}{limit}", node, lines or own)

    def _start_engine_when_cache_is_dropped(self) -> None:
        if not self._cache_dropped and "cache" in self._asked:
            self.progress = "giving page cache back"
            return
        self._effects.append(StartEngine(self.session))
        self._began, self._next_look = self.now, self.now
        self._stillness = self._new_stillness()
        self.missing = ()
        self._enter("starting-engine", "vllm starting")

    def _starting_engine(self) -> None:
        if not self.silent:
            self.progress = self.logs["vllm"].progress.text or self.progress
        if self.moved:
            self._stillness.moved(self.now)
        answer = self._answer("health")
        if answer:
            self._next_look = self.now + HEALTH_EVERY_S
        if answer and answer.value == 200:
            self._ask("probe", max(self.limits.probe_s, FIRST_PROBE_LIMIT_S))
            self._enter("probing", "a one-token completion")
        elif failure := self._too_long():
            self._fail(failure)
        elif self.now >= self._next_look:
            self._ask("health", WATCH_LIMIT_S)

    def _new_stillness(self) -> Stillness:
        return Stillness(self.now, self.limits.stuck_s, nodes=len(self.settings.nodes))

    def _too_long(self) -> Failure | None:
        limit = self.limits.start_limit_s
        if self.now - self._began > limit:
            return self._of_engine(f"not ready in {limit:.0f} s, last seen: {self.progress}")
        if not self.silent and self._stillness.stuck(self.now, self._activity()):
            return self._of_engine(
                f"stuck: nothing read, computed or said for {self.limits.stuck_s:.0f} s, last seen: {self.progress}"
            )
        return None

    def _activity(self) -> Activity:
        beats = [view.beat for view in self.seen.peers.values()]
        return Activity(
            self.seen.activity.read_bytes + sum(beat.read_bytes for beat in beats),
            self.seen.activity.cpu_s + sum(beat.cpu_s for beat in beats),
        )

    def _probing(self) -> None:
        answer = self._answer("probe")
        if answer and answer.value == 200:
            self._keep(self.attempts.ready())
            self._in_vain = 0
            self._healthy_since = self._proved_at = self._next_look = self.now
            self._enter("serving")
        elif answer:
            self._fail(self._of_engine(f"/health is 200, but a one-token completion failed: {_why(answer)}"))

    def _serving(self) -> None:
        if failure := self._look() or self._probe_failure():
            self._fail(failure)
            return
        if self.now - self._healthy_since >= self.limits.healthy_s and self.attempts.count:
            self._keep(replace(self.attempts, count=0))
        if self.silent or self.verifying:
            self._patient_since = self.now
        elif self.now - max(self._proved_at, self._patient_since) > self.limits.hang_s:
            self._doubt()
        else:
            self.progress = ""

    def _doubt(self) -> None:
        """No sign of life for hang_s: a one-token completion decides; shown only if requests wait for it."""
        self._probe()
        if self._counters and self._counters.requests:
            still = (
                f"no engine step for {self.limits.hang_s:.0f} s with {self._counters.requests:.0f} requests"
            )
            self._enter("suspect", still)

    def _look(self) -> Failure | None:
        """Ask the engine for its health and counters every 2 s; give what is wrong with it."""
        answer = self._answer("watch")
        if answer is None:
            if self.now >= self._next_look:
                self._ask("watch", WATCH_LIMIT_S)
            return None
        self._next_look = self.now + WATCH_EVERY_S
        if not isinstance(answer.value, Watch):
            self._errors += 1
            wrong = f"/health did not answer {WATCH_ERRORS} times: {answer.error}"
            return self._of_engine(wrong) if self._errors >= WATCH_ERRORS else None
        self._errors = 0
        if answer.value.health == 200:
            self._note_counters(answer.value.counters)
        else:
            self._note_end(f"/health answered {answer.value.health}")
        return None

    def _note_counters(self, counters: Counters | None) -> None:
        before = self._counters
        self._counters = counters
        if counters is None or before is None:
            return
        if counters.steps != before.steps:
            self._proved_at = self.now
        if counters.requests and not before.requests:
            self._patient_since = self.now
        if self.verifying and self._linked_steps is not None and counters.steps != self._linked_steps:
            self.verifying = False

    def _probe(self) -> None:
        if "probe" not in self._asked:
            self._probed_at = self.now
            self._ask("probe", self.limits.probe_s)

    def _probe_failure(self) -> Failure | None:
        answer = self._answer("probe")
        if answer is None:
            return None
        if isinstance(answer.value, int) and answer.value < 500:
            self._proved_at, self.verifying = self.now, False
            return None
        # Silent: peer_timeout_s decides, not a probe that needs the peer. Stepped since: only slow.
        if self.silent or self._proved_at > self._probed_at:
            return None
        return self._of_engine(
            f"hang: {self.progress or 'idle'}, and a one-token completion failed: {_why(answer)}"
        )

    def _suspect(self) -> None:
        if failure := self._look() or self._probe_failure():
            self._fail(failure)
        elif self.silent or self._proved_at > self._probed_at:
            self._enter("serving")


def _why(answer: Answer) -> str:
    late = answer.error.startswith("TimeoutError")
    return "it did not come back in time" if late else answer.error or f"HTTP {answer.value}"


@dataclass(frozen=True)
class Problem:
    """Who is missing in Ray, and who is there that should not be. *hopeless*: waiting will not mend it."""

    missing: tuple[str, ...]
    unexpected: tuple[str, ...]
    text: str
    hopeless: bool = False


def members_problem(settings: Settings, members: Iterable[tuple[str, float]]) -> Problem:
    """Compare Ray's living nodes (address, GPUs) with the deployment's."""
    gpus = dict(members)
    wanted = settings.nodes
    absent = {ip: name for ip, name in wanted.items() if ip not in gpus}
    bare = [name for ip, name in wanted.items() if ip in gpus and gpus[ip] < 1]
    unexpected = tuple(ip for ip in gpus if ip not in wanted)
    said = [f"{name} ({ip}) did not join Ray" for ip, name in absent.items()]
    if absent and unexpected:
        ip, name = next(iter(absent.items()))
        said = [f"Ray registered {name} under {unexpected[0]}, wanted {ip}"]
    elif unexpected:
        said = [f"{unexpected[0]} joined Ray and is no node of {settings.deployment}"]
    said += [f"{name} joined Ray without a GPU" for name in bare]
    hopeless = bool(unexpected or bare) and len(gpus) >= len(wanted)
    return Problem((*absent.values(), *bare), unexpected, "; ".join(said), hopeless)


class WorkerMachine(Machine):
    """A worker: its Ray lives exactly as long as the head's session."""

    waiting = "waiting-head"

    def __init__(self, settings: Settings, attempts: Attempts, incarnation: str) -> None:
        super().__init__(settings, attempts, incarnation)
        self.ray_up = False
        self._began = 0.0
        self._handlers |= {
            "waiting-head": self._waiting_head,
            "starting-ray": self._in_session,
            "joined": self._in_session,
            "serving": self._in_session,
        }

    def said(self) -> Beat:
        lines = tuple(self.logs["ray"].tail)[-6:] if not self.ray_up else ()
        return replace(super().said(), ray=self.ray_up, lines=lines)

    @property
    def _head(self) -> PeerView:
        return self.seen.peers.get(self.settings.head, PeerView())

    def _clean(self, failure: Failure | None) -> None:
        self.ray_up = False
        super()._clean(failure)

    def _after_clean(self) -> None:
        """A worker counts nothing, and waits for its memory alone: the head does the rest."""
        self._resume_at = self.now
        self._back_off()

    def _waiting_head(self) -> None:
        if self.seen.address_error:
            self._waiting_address()
            return
        head, name = self._head, self.settings.head
        self.missing = () if head.here else (name,)
        self.progress = f"{name} is {head.beat.phase}" if head.here else f"{name} is not heard"
        if name in self.seen.foreign_release:
            self.progress = f"{name} runs release {self.seen.foreign_release[name]}"
        if head.here and head.beat.session and head.beat.session != self.left:
            self._begin(head.beat.session)

    def _begin(self, session: str) -> None:
        self.session = session
        self.logs = {"ray": EngineLog(), "vllm": EngineLog()}
        self._began = self.now
        self._remember_peers()
        self._keep(replace(self.attempts, open=True))
        self._effects.append(StartRay(session))
        self._ask("cache", DROP_CACHE_LIMIT_S)
        self._enter("starting-ray")

    def _in_session(self) -> None:
        failure = self._ray_failure() or self._not_started() or self._session_over()
        if failure:
            self._fail(failure)
            return
        self._answer("cache")
        self.ray_up = self.ray_up or any("Ray runtime started" in line for line in self.logs["ray"].tail)
        self._look_at_link()
        head = self._head.beat.phase
        if self.ray_up and not self.silent:
            self._enter(
                "serving" if head in ("serving", "suspect") else "joined", f"{self.settings.head} is {head}"
            )

    def _not_started(self) -> Failure | None:
        if self.ray_up or self.now - self._began <= RAY_START_LIMIT_S:
            return None
        what = f"ray start did not join {self.settings.head_ip}:{self.settings.ray_port} in {RAY_START_LIMIT_S:.0f} s"
        return Failure(what, self.settings.node, tuple(self.logs["ray"].tail))

    def _session_over(self) -> Failure | None:
        for name in self.settings.peers:
            if self._incarnations[name] and (failure := self._lost_peer(name)):
                return failure
        beat = self._head.beat
        if beat.session == self.session:
            return None
        if beat.left == self.session:
            return Failure(beat.cause, beat.cause_node)
        return Failure(f"{self.settings.head} left the session: it is {beat.phase}", self.settings.head)


# ================================================================================================= the world


@dataclass(frozen=True)
class Folders:
    """*release* is read-only and immutable, *run* is ours; all that we write belongs to the owner of *run*."""

    release: Path
    run: Path
    cache: Path
    models: Path  # of the Hugging Face cache

    @classmethod
    def from_environment(cls) -> Folders:
        base = Path("/spark-deploy")
        return cls(
            release=Path(os.environ.get("SPARK_DEPLOY_RELEASE", base / "release")),
            run=Path(os.environ.get("SPARK_DEPLOY_RUN", base / "run")),
            cache=base / "cache",
            models=Path(os.environ.get("HF_HOME", base / "huggingface")) / "hub",
        )

    def read(self, name: str) -> str:
        """Text of a file in run/, `""` where there is none."""
        with contextlib.suppress(OSError, UnicodeDecodeError):
            return (self.run / name).read_text()
        return ""

    def arguments(self, name: str) -> list[str]:
        """One argument a line, as they stand in the release folder."""
        return (self.release / name).read_text().splitlines()

    def release_id(self) -> str:
        if known := os.environ.get("SPARK_DEPLOY_RELEASE_ID"):
            return known
        with contextlib.suppress(OSError):
            return hashlib.sha256((self.release / "manifest.json").read_bytes()).hexdigest()[:12]
        return ""

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Replace a JSON file in one piece: a reader, and a power cut, sees the old one or the new one."""
        scratch = self.run / f".{name}.new"
        with scratch.open("w") as file:
            json.dump(value, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        self.adopt(scratch)
        scratch.replace(self.run / name)

    def adopt(self, *paths: Path) -> None:
        """Give *paths*, and all below them, to the owner of run/: an operator who is not root removes them."""
        owner = self.run.stat()
        for path in paths:
            for entry in (path, *path.rglob("*")):
                with contextlib.suppress(OSError):
                    if entry.lstat().st_uid != owner.st_uid:
                        os.chown(entry, owner.st_uid, owner.st_gid, follow_symlinks=False)


class Console:
    """
    Standard output that never blocks whoever speaks.

    The pipe behind it belongs to dockerd: while that is down it fills, and an engine that waits for a log line
    to be written does not serve. Lines that find no room are dropped and counted.
    """

    def __init__(self, pipe: IO[bytes]) -> None:
        self._pipe = pipe
        self._lines: queue.Queue[bytes] = queue.Queue(maxsize=20_000)
        self._dropped = 0
        threading.Thread(target=self._write, daemon=True).start()

    def say(self, source: str, text: str) -> None:
        try:
            self._lines.put_nowait(f"[{source}] {text}\n".encode())
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Give the last lines a moment to get out."""
        deadline = time.monotonic() + 0.5
        while not self._lines.empty() and time.monotonic() < deadline:
            time.sleep(0.01)

    def _write(self) -> None:
        while True:
            line = self._lines.get()
            if self._dropped:
                line = f"[supervise] {self._dropped} lines were dropped: nobody read them\n".encode() + line
                self._dropped = 0
            self._pipe.write(line)
            if self._lines.empty():
                self._pipe.flush()


class Children:
    """`ray` and `vllm`: started, their output read line by line with secrets struck out, their ends seen."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._exits: dict[str, int] = {}
        self._fresh: deque[tuple[str, str]] = deque(maxlen=20_000)
        self.kept: dict[str, deque[str]] = {name: deque(maxlen=EVIDENCE_LINES) for name in ("ray", "vllm")}
        self.secrets: tuple[str, ...] = ()

    def start(self, name: str, argv: list[str], env: Mapping[str, str]) -> None:
        self._exits.pop(name, None)
        self.kept[name].clear()
        try:
            child = subprocess.Popen(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._line(name, f"Error: {argv[0]}: {error.strerror} (in this image)")
            self._exits[name] = 127
            return
        self._running[name] = child
        threading.Thread(target=self._pump, args=(name, child), daemon=True).start()

    def exits(self) -> dict[str, int]:
        for name, child in list(self._running.items()):
            if (code := child.poll()) is not None:
                del self._running[name]
                self._exits[name] = code
        return dict(self._exits)

    def forget(self) -> None:
        """They are to be ended: what they still say or how they end is of no interest."""
        for name, child in list(self._running.items()):
            del self._running[name]
            threading.Thread(target=child.wait, name=f"reap {name}", daemon=True).start()
        self._exits.clear()
        self._fresh.clear()

    def fresh_lines(self) -> tuple[tuple[str, str], ...]:
        lines: list[tuple[str, str]] = []
        with contextlib.suppress(IndexError):
            while True:
                lines.append(self._fresh.popleft())
        return tuple(lines)

    def struck(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text

    def _pump(self, name: str, child: subprocess.Popen[bytes]) -> None:
        if child.stdout is None:
            return
        rest = b""
        while chunk := os.read(child.stdout.fileno(), 65536):
            *lines, rest = re.split(rb"\r\n|[\r\n]", rest + chunk)  # \r: progress bars
            for line in lines:
                self._line(name, line[:8000].decode(errors="replace"), child)
            rest = rest[-8000:]
        self._line(name, rest.decode(errors="replace"), child)
        child.stdout.close()

    def _line(self, name: str, text: str, child: subprocess.Popen[bytes] | None = None) -> None:
        text = self.struck(text)
        if not text.strip():
            return
        self._console.say(name, text)
        if child is None or self._running.get(name) is child or name in self._exits:
            self.kept[name].append(text)
            self._fresh.append((name, text))


# -- processes


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty: the process has gone."""
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/stat").read_text()
        return text[text.rindex(")") + 2 :].split()
    return []


def other_processes() -> list[int]:
    """
    Every process of the container but its init, this one, and what an operator runs by `docker exec`.

    The last have a parent outside (0), or one of their ancestors has.
    """
    stats = {int(entry): _stat(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}  # noqa: PTH208
    parents = {pid: int(stat[1]) for pid, stat in stats.items() if stat and stat[0] != "Z"}

    def root(pid: int) -> int:
        while parents.get(pid, 0):
            pid = parents[pid]
        return pid

    return [pid for pid in parents if pid not in (1, os.getpid()) and root(pid) in (1, os.getpid())]


def kill_others(limit_s: float) -> list[int]:
    """SIGKILL them all, also stopped ones, until none is left; give those that could not be killed."""
    deadline = time.monotonic() + limit_s
    while (left := other_processes()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return left


class ActivityMeter:
    """Adds up what the processes of the container read and compute; one that has gone keeps its share."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[float, float]] = {}
        self._total = Activity()
        self._tick_s = 1 / os.sysconf("SC_CLK_TCK")

    def measure(self) -> Activity:
        now = {pid: self._of(pid) for pid in other_processes()}
        grown = [self._growth(pid, values) for pid, values in now.items()]
        self._last = now
        self._total = Activity(
            self._total.read_bytes + sum(read for read, _ in grown),
            self._total.cpu_s + sum(cpu for _, cpu in grown),
        )
        return self._total

    def _growth(self, pid: int, values: tuple[float, float]) -> tuple[float, float]:
        read, cpu = self._last.get(pid, (0.0, 0.0))
        return max(0.0, values[0] - read), max(0.0, values[1] - cpu)

    def _of(self, pid: int) -> tuple[float, float]:
        """Bytes by read(2) and by page faults; CPU with that of children that have ended (compilers)."""
        stat, read = _stat(pid), 0
        with contextlib.suppress(OSError, ValueError):
            io = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
            read = int(io["rchar"]) + int(io["read_bytes"])
        return float(read), sum(map(int, stat[11:15])) * self._tick_s if stat else 0.0


def memory_kb() -> dict[str, int]:
    """/proc/meminfo."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return {}


def drop_cache(folder: Path) -> int:
    """
    Give the page cache of the files in *folder* back; give how many files that were.

    Page cache counts as used memory for CUDA on GB10. Works read-only and as any user, not on what a process
    has mapped: so before the engine starts.
    """
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
    return len(files)


def model_folder(model: str, models: Path) -> Path:
    """Where a Hub id or a local path lies in the container."""
    return Path(model) if model.startswith("/") else models / ("models--" + model.replace("/", "--"))


def address_error(ip: str, port: int) -> str:
    """Why no UDP socket can be bound, `""` if one can; *port* 0 asks for the address alone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((ip, port))
        except OSError as error:
            what = f"UDP {ip}:{port}" if port else f"fabric address {ip}"
            return f"{what}: {error.strerror}"
    return ""


# -- the API and Ray


class Api:
    """vLLM's HTTP server on this node. A proxy in the environment is none of its business."""

    def __init__(self, settings: Settings, key: str) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.api_host, settings.api_host)
        self._base = f"http://{host}:{settings.api_port}"
        self._model = settings.served_name
        self._headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {key}"} if key else {}
        )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def health(self, limit_s: float) -> int:
        return self._call("/health", None, limit_s)[0]

    def watch(self, limit_s: float) -> Watch:
        health = self.health(limit_s)
        status, text = self._call("/metrics", None, limit_s) if health == 200 else (0, "")
        return Watch(health, parse_metrics(text) if status == 200 else None)

    def complete(self, limit_s: float) -> int:
        """Ask for one token; give the HTTP status. 404: a model without plain completions."""
        asked = {"model": self._model, "max_tokens": 1, "temperature": 0}
        status, _ = self._call("/v1/completions", {**asked, "prompt": "1"}, limit_s)
        if status == 404:
            messages = [{"role": "user", "content": "1"}]
            status, _ = self._call("/v1/chat/completions", {**asked, "messages": messages}, limit_s)
        return status

    def _call(self, path: str, body: Mapping[str, Any] | None, limit_s: float) -> tuple[int, str]:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self._base + path, data, self._headers)
        try:
            with self._opener.open(request, timeout=limit_s) as response:
                return response.status, response.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from error


# `ray status` names no addresses and `ray list nodes` needs the dashboard. In the image's own Python, in a child:
# GcsClient may block for ever, and is not made to be used twice in one process.
MEMBERS = """
import json, sys
try:
    from ray._raylet import GcsClient
    nodes = GcsClient(address=sys.argv[1]).get_all_node_info().values()
    members = [(n.node_manager_address, dict(n.resources_total).get("GPU", 0)) for n in nodes if n.state == 0]
except (ImportError, AttributeError, TypeError):
    import ray
    ray.init(address=sys.argv[1], log_to_driver=False)
    members = [(n["NodeManagerAddress"], n["Resources"].get("GPU", 0)) for n in ray.nodes() if n["Alive"]]
print(json.dumps(sorted(members)))
"""


def ray_members(address: str, env: Mapping[str, str], limit_s: float) -> list[tuple[str, float]]:
    """
    Address and GPUs of every living node of the Ray cluster.

    Raises:
        OSError, subprocess.SubprocessError, ValueError: Ray did not tell, with its last line.
    """
    argv = ["python3", "-c", MEMBERS, address]
    done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=limit_s, check=False)
    if done.returncode:
        raise OSError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return [(ip, float(gpus)) for ip, gpus in json.loads(done.stdout.splitlines()[-1])]


def port_open(ip: str, port: int, limit_s: float) -> bool:
    with contextlib.suppress(OSError), socket.create_connection((ip, port), limit_s):
        return True
    return False


# -- evidence


class Evidence:
    """run/evidence/N: what a failed attempt leaves to look at; the last three are kept."""

    def __init__(self, folders: Folders, children: Children) -> None:
        self._folders = folders
        self._children = children

    def save(self, failure: Failure, state: Mapping[str, Any], env: Mapping[str, str]) -> Path:
        root = self._folders.run / "evidence"
        numbers = [int(path.name) for path in root.glob("*") if path.name.isdigit()]
        folder = root / str(max(numbers, default=0) + 1)
        folder.mkdir(parents=True)
        self._put(folder / "cause.json", json.dumps({"at": time.time(), **asdict(failure)}, indent=1))
        self._put(folder / "state.json", json.dumps(state, indent=1))
        self._put(folder / "meminfo.txt", "".join(f"{key} {kb} kB\n" for key, kb in memory_kb().items()))
        if self._children.kept["vllm"]:  # of the head: on a worker it only waits
            self._put(folder / "ray-status.txt", _output(["ray", "status"], env, 2.0))
        kernel = _output(["dmesg"], env, 1.0).splitlines()
        self._put(folder / "kernel-oom.txt", "\n".join(line for line in kernel if "oom" in line.lower()))
        for name, lines in self._children.kept.items():
            self._put(folder / f"{name}.log", "\n".join(lines))
        self._save_ray_logs(folder / "ray-logs", Path("/tmp/ray/session_latest/logs"))
        self._folders.adopt(root)
        for number in sorted(numbers)[: 1 - EVIDENCE_KEPT]:
            shutil.rmtree(root / str(number), ignore_errors=True)
        return folder

    def _put(self, path: Path, text: str) -> None:
        if text.strip():
            path.write_text(self._children.struck(text))

    def _save_ray_logs(self, folder: Path, logs: Path) -> None:
        """The end of each, the errors first, 2 MB in all."""
        room = EVIDENCE_BYTES
        files = [path for path in logs.glob("*") if path.is_file() and path.stat().st_size]
        for path in sorted(files, key=lambda path: (path.suffix != ".err", -path.stat().st_mtime)):
            size = min(room, 64_000, path.stat().st_size)
            if not size:
                return
            folder.mkdir(exist_ok=True)
            with path.open("rb") as file:
                file.seek(-size, os.SEEK_END)
                self._put(folder / path.name, file.read().decode(errors="replace"))
            room -= size


def _output(argv: list[str], env: Mapping[str, str], limit_s: float) -> str:
    """What a command prints, or why it prints nothing."""
    try:
        done = subprocess.run(
            argv,
            env=dict(env),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        return f"{' '.join(argv)}: {error}\n"
    return done.stdout.decode(errors="replace")


def empty(folder: Path, pattern: str = "*") -> None:
    for path in folder.glob(pattern):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()


# -- the heartbeat's thread


class Heartbeat:
    """Sends and hears beats on the fabric address in a thread of its own, whatever the rest is busy with."""

    def __init__(self, settings: Settings, hearing: Hearing, wake: threading.Event) -> None:
        self._settings = settings
        self._hearing = hearing
        self._wake = wake
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._said = Beat(node=settings.node)
        self.token = b""
        self.error = "not yet tried"
        self._next_beat = self._next_check = 0.0

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, said: Beat) -> None:
        """From now on the peers are told this; at once, if the session or the phase is another."""
        with self._lock:
            news = (said.session, said.phase, said.ray) != (
                self._said.session,
                self._said.phase,
                self._said.ray,
            )
            self._said = said
            if news:
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


# -- all together


class Supervisor:
    """Sees, lets the machine decide, does, and writes down what is; five times a second."""

    def __init__(self, settings: Settings, folders: Folders) -> None:
        self.settings = settings
        self.folders = folders
        self.release = folders.release_id()
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        self.incarnation = secrets.token_hex(6)
        self.console = Console(sys.stdout.buffer)
        self.children = Children(self.console)
        self.wake = threading.Event()
        self.heartbeat = Heartbeat(settings, Hearing(settings, self.release, self.incarnation), self.wake)
        attempts = parse_attempts(folders.read("attempts.json"))
        attempts = attempts.resumed(release=self.release, boot_id=self.boot_id, node=settings.node)
        kind = HeadMachine if settings.role == "head" else WorkerMachine
        self.machine: Machine = kind(settings, attempts, self.incarnation)
        self.stopping = False
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._secrets: dict[str, str] = {}
        self._desired = Desired()
        self._meter = ActivityMeter()
        self._activity = Activity()
        self._next_read = self._next_measure = self._next_write = 0.0
        self._written: dict[str, Any] = {}
        self._shown, self._since = "", time.time()

    def run(self) -> None:
        """Return when told to stop by a signal."""
        self._save_attempts(self.machine.attempts)
        self.heartbeat.start()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        while not self.stopping:
            self._turn()
            self.wake.wait(0.2)
            self.wake.clear()
        self._carry_out(self.machine.stopped())
        self.heartbeat.say(self._said())
        kill_others(3.0)
        self._publish()
        self.console.close()

    def _stop(self, *_: object) -> None:
        self.stopping = True
        self.wake.set()

    def _turn(self) -> None:
        try:
            self._carry_out(self.machine.step(time.monotonic(), self._look()))
            self._publish()
        except Exception as error:
            self.console.say("supervise", traceback.format_exc())
            time.sleep(1)
            self._carry_out(self.machine.crashed(f"{type(error).__name__}: {error}"))

    # -- seeing

    def _look(self) -> Seen:
        now = time.monotonic()
        if now >= self._next_read:
            self._next_read = now + 1
            self._read_files()
        if now >= self._next_measure:
            self._next_measure = now + 5
            self._activity = self._meter.measure()
        return Seen(
            desired=self._desired,
            token=bool(self.heartbeat.token),
            address_error=self.heartbeat.error,
            peers=self.heartbeat.view(),
            foreign_release=self.heartbeat.foreign_release(),
            exits=self.children.exits(),
            lines=self.children.fresh_lines(),
            answers=tuple(self._taken_answers()),
            activity=self._activity,
            available_kb=memory_kb().get("MemAvailable", 0),
        )

    def _read_files(self) -> None:
        self._desired = parse_desired(self.folders.read("desired"))
        self._secrets = parse_secrets(self.folders.read("secrets.env"))
        self.heartbeat.token = self._secrets.get("SPARK_DEPLOY_TOKEN", "").encode()
        self.children.secrets = tuple(value for value in self._secrets.values() if len(value) >= 8)

    def _taken_answers(self) -> Iterator[Answer]:
        while not self._answers.empty():
            yield self._answers.get()

    # -- doing

    def _carry_out(self, effects: list[Effect]) -> None:
        if effects:
            self.heartbeat.say(self._said())  # first of all: a peer that has to let go does so at once
        for effect in effects:
            if isinstance(effect, SaveAttempts):
                self._save_attempts(effect.attempts)
            elif isinstance(effect, StartRay):
                argv = ["ray", "start", *self.folders.arguments("ray.args")]
                env = self._environment(effect.session)
                Path(env["TMPDIR"]).mkdir(exist_ok=True)
                self.children.start("ray", argv, env)
            elif isinstance(effect, StartEngine):
                argv = ["vllm", "serve", *self.folders.arguments("serve.args")]
                env = self._environment(effect.session) | {"RAY_ADDRESS": self._ray_address}
                self.children.start("vllm", argv, env)
            elif isinstance(effect, Clean):
                self._begin_cleaning(effect)
            else:
                self._in_thread(effect, self._work(effect))

    @property
    def _ray_address(self) -> str:
        return f"{self.settings.head_ip}:{self.settings.ray_port}"

    def _environment(self, session: str) -> dict[str, str]:
        """The container's, the secrets, and in a session a TMPDIR of its own: SIGKILL leaves sockets in it."""
        env = {"RAY_AUTH_MODE": "token", **os.environ, **self._secrets}
        env |= {"RAY_AUTH_TOKEN": env.pop("SPARK_DEPLOY_TOKEN", ""), "RAY_TMPDIR": "/tmp"}
        return env | ({"TMPDIR": f"/tmp/sd-{session}"} if session else {})

    def _work(self, ask: Ask) -> Callable[[], object]:
        api = Api(self.settings, self._secrets.get("VLLM_API_KEY", ""))
        env, limit = self._environment(""), ask.limit_s
        model = model_folder(self.settings.model, self.folders.models)
        work: dict[str, Callable[[], object]] = {
            "port": lambda: port_open(self.settings.head_ip, self.settings.ray_port, limit),
            "members": lambda: ray_members(self._ray_address, env, limit),
            "health": lambda: api.health(limit),
            "watch": lambda: api.watch(limit),
            "probe": lambda: api.complete(limit),
            "cache": lambda: drop_cache(model),
        }
        return work[ask.question]

    def _in_thread(self, ask: Ask | None, work: Callable[[], object]) -> None:
        def answer() -> None:
            value, error = None, ""
            try:
                value = work()
            except Exception as caught:
                error = f"{type(caught).__name__}: {caught}"
            if ask:
                self._answers.put(Answer(ask.number, ask.question, value, error))
                self.wake.set()

        threading.Thread(target=answer, daemon=True).start()

    def _begin_cleaning(self, clean: Clean) -> None:
        state, env = self._state(), self._environment("")

        def work() -> None:
            if clean.failure:
                self._save_evidence(clean.failure, state, env)
            self.children.forget()
            self._kill_and_empty()

        self._in_thread(Ask(clean.number, "clean", CLEAN_LIMIT_S), work)

    def _save_evidence(self, failure: Failure, state: Mapping[str, Any], env: Mapping[str, str]) -> None:
        try:
            Evidence(self.folders, self.children).save(failure, state, env)
        except OSError as error:  # a full disk must not keep the memory taken
            self.console.say("supervise", f"cannot save the evidence: {error}")

    def _kill_and_empty(self) -> None:
        if left := kill_others(CLEAN_LIMIT_S / 2):
            self.console.say("supervise", f"cannot kill {left}")
        empty(Path("/dev/shm"))
        empty(Path("/tmp"), "ray")
        empty(Path("/tmp"), "sd-*")
        self.folders.adopt(self.folders.cache)

    # -- telling

    def _said(self) -> Beat:
        said = self.machine.said()
        activity = self._activity
        return replace(
            said, boot=self.boot_id[:8], read_bytes=int(activity.read_bytes), cpu_s=int(activity.cpu_s)
        )

    def _save_attempts(self, attempts: Attempts) -> None:
        self._write("attempts.json", {"schema": SCHEMA, **asdict(attempts)})

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        try:
            self.folders.write(name, value)
        except OSError as error:
            self.console.say("supervise", f"cannot write run/{name}: {error}")

    def _state(self) -> dict[str, Any]:
        """What state.json says, but for the time of writing."""
        machine = self.machine
        return {
            "schema": SCHEMA,
            "deployment": self.settings.deployment,
            "node": self.settings.node,
            "role": self.settings.role,
            "release": self.release,
            "phase": machine.shown,
            "since": self._since,
            "progress": machine.progress,
            "attempts": machine.attempts.count,
            "attempt_limit": machine.attempts.limit(self.settings.limits),
            "ready_once": machine.attempts.ready_once,
            "cause": machine.cause,
            "cause_node": machine.cause_node,
            "last_lines": list(machine.last_lines),
            "transport": machine.transport,
            "members": list(machine.members),
            "missing": list(machine.missing),
            "boot_id": self.boot_id,
            "session": machine.session,
            "run": machine.attempts.run,
            "foreign_releases": self.heartbeat.foreign_release(),
        }

    def _publish(self) -> None:
        self._note_transition()
        self.heartbeat.say(self._said())
        state, now = self._state(), time.monotonic()
        if state == self._written and now < self._next_write:
            return
        self._written, self._next_write = state, now + STATE_EVERY_S
        peers = {
            name: {"age_s": round(view.age_s, 1) if view.age_s < math.inf else None, "phase": view.beat.phase}
            for name, view in self.heartbeat.view().items()
        }
        self._write(
            "state.json", {**state, "at": time.time(), "peers": peers, "ignored": self.heartbeat.ignored()}
        )

    def _note_transition(self) -> None:
        machine = self.machine
        if machine.shown != self._shown:
            self._shown, self._since = machine.shown, time.time()
            said = machine.progress
            self.console.say("supervise", f"{time.strftime('%H:%M:%S')} {machine.shown} {said}".rstrip())
            if machine.shown == "serving":  # what the engine has compiled
                self._in_thread(None, lambda: self.folders.adopt(self.folders.cache))


def refuse_outside_a_container() -> None:
    """
    This program ends every process it can see.

    Raises:
        SystemExit: this is the machine's own process namespace, or not a container's main process.
    """
    initial = (
        Path("/proc/self/ns/pid").readlink().name == "pid:[4026531836]"
    )  # PROC_PID_INIT_INO, fixed in Linux
    if initial or os.getppid() not in (0, 1):
        raise SystemExit(
            "supervise.py is the main process of a container, and nothing else: see run.sh beside it"
        )


def main() -> None:
    refuse_outside_a_container()
    folders = Folders.from_environment()
    settings = parse_settings((folders.release / "supervise.json").read_text())
    Supervisor(settings, folders).run()
    os._exit(0)  # threads that wait for an engine that is no more do not hold us up


if __name__ == "__main__":
    main()
