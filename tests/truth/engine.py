"""What a real engine would keep: who runs and who waits, the prefix cache, counters that never go back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .options import Options
from .record import Record
from .tokens import Tokenizer

if TYPE_CHECKING:
    from .stream import Stream

BLOCK = 16  # tokens: vLLM's block size


@dataclass
class Totals:
    """Counters since the start, seconds and tokens."""

    prompt: int = 0
    generated: int = 0
    requests: int = 0
    finished: int = 0
    first_tokens: int = 0
    ttft_s: float = 0
    queue_s: float = 0
    decode_s: float = 0
    steps: int = 0
    decode_tokens: int = 0
    e2e_s: float = 0
    prefix_queries: int = 0
    prefix_hits: float = 0


class Engine:
    """The state of the server."""

    def __init__(self, options: Options) -> None:
        self.options, self.tokenizer, self.totals = options, Tokenizer(), Totals()
        self.running = 0
        self.waiting: deque[Stream] = deque()
        self._blocks: set[int] = set()
        self.forget()

    def forget(self) -> None:
        """A new measurement: requests are counted from 0 again."""
        self.records: list[Record] = []
        self.bodies: list[bytes] = []
        self.connections = self.faultable = self.in_flight_max = 0

    @property
    def in_flight(self) -> int:
        return self.running + len(self.waiting)

    def admit(self, stream: Stream) -> bool:
        """False: it waits, and is started by the one that makes room."""
        limit = self.options.max_seqs
        if limit and self.running >= limit:
            self.waiting.append(stream)
        else:
            self.running += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        return stream not in self.waiting if limit else True

    def leave(self, stream: Stream) -> Stream | None:
        """Who takes the place of *stream*."""
        if stream in self.waiting:
            self.waiting.remove(stream)
            return None
        self.running -= 1
        if not self.waiting:
            return None
        self.running += 1
        return self.waiting.popleft()

    def count_prompt(self, ids: list[int], salt: str) -> None:
        """Counts the blocks that an earlier prompt with this salt began with, too."""
        self.totals.requests += 1
        self.totals.prompt += len(ids)
        self.totals.prefix_queries += len(ids)
        if self.options.prefix_hits is not None:
            self.totals.prefix_hits += self.options.prefix_hits * len(ids)
            return
        chain, hit = hash(salt), True
        for start in range(0, len(ids) - BLOCK, BLOCK):  # the last token is computed in any case
            chain = hash((chain, *ids[start : start + BLOCK]))
            hit = hit and chain in self._blocks
            self.totals.prefix_hits += BLOCK * hit
            self._blocks.add(chain)

    def count_stream(self, record: Record) -> None:
        """Called when it ended, in whatever way."""
        totals = self.totals
        totals.finished += 1
        if record.t_first is not None:
            totals.decode_s += record.t_last - record.t_first
            totals.decode_tokens += record.sent - record.tokens[0]
            totals.e2e_s += record.t_last - record.t_recv
