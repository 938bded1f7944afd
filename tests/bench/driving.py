"""One level of a load, driven and read as `bench` does it, without its command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from orchestrator.bench.stream import Wanted, read
from orchestrator.client.drive import Driven, Limits, closed_loop, run
from orchestrator.client.server import api_path, parse_url
from orchestrator.model.bench import Request
from tests.truth.client import Truth

USAGE = {"include_usage": True, "continuous_usage_stats": True}
TOKENS = 16


def bodies(*, chat: bool, tokens: int, prompt_tokens: int = 32, **more: Any) -> Iterator[bytes]:
    """Endless, and no two have the same prompt."""
    number = 0
    while True:
        number += 1
        messages = [{"role": "user", "content": f"Story number {number}."}]
        prompt = {"messages": messages} if chat else {"prompt": [1000 + number] * prompt_tokens}
        fixed = {"model": "gt-model", "max_tokens": tokens, "min_tokens": tokens, "ignore_eos": True}
        yield json.dumps(fixed | {"stream": True, "stream_options": USAGE} | prompt | more).encode()


def drive(
    truth: Truth,
    *,
    requests: int,
    concurrency: int = 1,
    tokens: int = TOKENS,
    chat: bool = False,
    limits: Limits | None = None,
    prompt_tokens: int = 32,
    **more: Any,
) -> Driven:
    asked = bodies(chat=chat, tokens=tokens, prompt_tokens=prompt_tokens, **more)
    server = parse_url(truth.url, ca_file=truth.ca_file)
    path = api_path(server, "/chat/completions" if chat else "/completions")
    return run(closed_loop(server, path, asked, concurrency, requests=requests, limits=limits or Limits()))


def driven(truth: Truth, **load: Any) -> list[Request]:
    """The requests of `drive` as they were read, in the order in which they were sent."""
    done = drive(truth, **load)
    wanted = Wanted(load.get("tokens", TOKENS))
    return sorted((read(one, wanted, done.zero_ns) for one in done.received), key=lambda one: one.sent_s)
