"""Which peers are here, and what they said last: beats that cannot be replayed. Pure."""

from __future__ import annotations

import math
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from supervisor.beat import Beat, IgnoredError, decode_beat

if TYPE_CHECKING:
    from supervisor.settings import Settings

BEAT_S = 0.25
FRESH_S = 2.0  # a peer heard this recently is here


@dataclass(frozen=True)
class PeerView:
    """A peer as last heard. *age_s* counts from our own beat that it has proved to have heard."""

    age_s: float = math.inf
    beat: Beat = field(default_factory=Beat)

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
            self.ignored[str(ignored)] += 1
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
