"""What one supervisor tells another, as an authenticated datagram. Pure."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

MAX_DATAGRAM = 1000


@dataclass(frozen=True)
class Beat:
    """
    What one supervisor tells another, four times a second.

    *session* is the Ray cluster this node is in (`""`: none; a new one at every start of the head's Ray),
    *left* the last one it was in, which ended for *cause*. *heard* and *heard_counter* give back the
    receiver's own incarnation and the highest of its counters that got here: the proof of freshness.
    """

    node: str = ""
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


def _sign(body: bytes, token: bytes) -> bytes:
    return hmac.new(token, body, hashlib.sha256).digest()


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore")


def encode_beat(beat: Beat, deployment: str, token: bytes) -> bytes:
    """Give the datagram: 32 bytes of HMAC-SHA256, then JSON; log lines are dropped until it is small enough."""
    beat = replace(beat, cause=_cut(beat.cause, 240), lines=tuple(_cut(line, 200) for line in beat.lines))
    while True:
        values = {"deployment": deployment} | {key: value for key, value in asdict(beat).items() if value}
        body = json.dumps(values, separators=(",", ":"), ensure_ascii=False).encode()
        if len(body) + 32 <= MAX_DATAGRAM:
            return _sign(body, token) + body
        if not beat.lines and not beat.cause:
            raise ValueError(
                f"a beat without cause and lines has {len(body) + 32} bytes, wanted {MAX_DATAGRAM}"
            )
        shorter = beat.cause if beat.lines else _cut(beat.cause, len(beat.cause.encode()) // 2)
        beat = replace(beat, lines=beat.lines[1:], cause=shorter)


_BEAT_TYPES: dict[str, type] = {item.name: type(item.default) for item in fields(Beat)}


def decode_beat(datagram: bytes, deployment: str, token: bytes) -> Beat:
    """
    Give what an authentic datagram says; whether it is fresh, `Hearing` knows.

    Raises:
        IgnoredError: oversized, forged or foreign.
        AttributeError, RecursionError, ValueError: it is no JSON object.
    """
    if len(datagram) > MAX_DATAGRAM:
        raise IgnoredError("oversized")
    mac, body = datagram[:32], datagram[32:]
    if not hmac.compare_digest(mac, _sign(body, token)):
        raise IgnoredError("forged")
    raw = json.loads(body)
    if raw.get("deployment") != deployment:
        raise IgnoredError("foreign")
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}
    known: dict[str, Any] = {k: v for k, v in values.items() if isinstance(v, _BEAT_TYPES.get(k, ()))}
    return Beat(**known)
