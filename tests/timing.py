"""
A small timing of a served model at concurrency 1, 2 and 4: `python tests/timing.py http://HOST:PORT/v1 MODEL`.

Each level streams as many requests as its concurrency; the first request of all is told apart, as it may
compile. Prints tokens per second over all requests of a level, and the mean time to the first token.
"""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

TOKENS = 100


def stream(url: str, model: str, prompt: str) -> tuple[int, float, float]:
    """Tokens, seconds to the first, seconds in all; raises ValueError when the stream is not whole."""
    body = {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": TOKENS,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{url}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    began, first_s, tokens = time.monotonic(), 0.0, 0
    with urllib.request.urlopen(request, timeout=120) as response:
        for line in response:
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                return tokens, first_s, time.monotonic() - began
            if not data:
                continue
            event = json.loads(data)
            if "error" in event:
                raise ValueError(event["error"])
            if event.get("usage"):
                tokens = event["usage"]["completion_tokens"]
            if not first_s and any(choice["delta"].get("content") for choice in event["choices"]):
                first_s = time.monotonic() - began
    raise ValueError("the stream ended without [DONE]")


def level(url: str, model: str, concurrency: int) -> str:
    """One line of the table; raises what any of the requests raised."""
    began = time.monotonic()
    with ThreadPoolExecutor(concurrency) as pool:
        prompts = [f"Tell story {concurrency}.{number}." for number in range(concurrency)]
        answers = list(pool.map(lambda prompt: stream(url, model, prompt), prompts))
    rate = sum(tokens for tokens, _, _ in answers) / (time.monotonic() - began)
    first_s = sum(first for _, first, _ in answers) / concurrency
    return f"{concurrency:>11}  {rate:>8.1f}  {first_s:>9.3f}"


def main(url: str, model: str) -> None:
    _, first_s, total_s = stream(url, model, "Say hello.")
    print(f"first request: {first_s:.3f} s to the first token, {total_s:.2f} s in all ({TOKENS} tokens)")
    print("concurrency  tokens/s  TTFT mean")
    for concurrency in (1, 2, 4):
        print(level(url, model, concurrency))


if __name__ == "__main__":
    main(*sys.argv[1:3])
