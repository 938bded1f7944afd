"""Server-sent events as vLLM writes them, framed as HTTP chunks."""

from __future__ import annotations

import json
from typing import Literal

from .http import chunk
from .options import Options

Kind = Literal["content", "reasoning", "tool"]
DONE = chunk(b"data: [DONE]\n\n")
PING = chunk(b": ping\n\n")


class Events:
    """Those of one stream. Without usage in every event they differ only by kind and size, and are made once."""

    def __init__(
        self, options: Options, number: int, *, chat: bool, usage: bool, ids: bool, prompt_tokens: int
    ) -> None:
        self.options, self.chat, self.usage, self.ids = options, chat, usage, ids
        self.prompt_tokens = prompt_tokens
        name, kind = ("chatcmpl", "chat.completion.chunk") if chat else ("cmpl", "text_completion")
        self.id = f"{name}-{number:08x}"
        self.head = (
            f'data: {{"id":"{self.id}","object":"{kind}","created":1700000000,'
            f'"model":{json.dumps(options.model)},"choices":'
        )
        self._made: dict[tuple[Kind, int], bytes] = {}

    def tokens(self, kind: Kind, n: int, total: int, finish: str | None = None) -> bytes:
        """An event with *n* tokens; *total* have been sent with it."""
        if finish or self.usage:
            return self._event(kind, n, total, finish)
        made = self._made.get((kind, n))
        if made is None:
            made = self._made[kind, n] = self._event(kind, n, total, None)
        return made

    def role(self) -> bytes:
        delta = '"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null'
        return self._framed(f'[{{"index":0,{delta}}}]', self._usage(0) if self.usage else "")

    def closing_usage(self, total: int) -> bytes:
        return self._framed("[]", self._usage(total))

    def error(self, message: str) -> bytes:
        error = {"message": message, "type": "InternalServerError", "param": None, "code": 500}
        return chunk(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")

    def _event(self, kind: Kind, n: int, total: int, finish: str | None) -> bytes:
        ids = f',"token_ids":{[262] * n}' if self.ids else ""
        said = f'"logprobs":null,"finish_reason":{json.dumps(finish)}{ids}'
        content = f'"delta":{self._delta(kind, n)}' if self.chat else f'"text":{self._text(n)}'
        return self._framed(f'[{{"index":0,{content},{said}}}]', self._usage(total) if self.usage else "")

    def _delta(self, kind: Kind, n: int) -> str:
        if not n:
            return "{}"
        if kind == "tool":
            return f'{{"tool_calls":[{{"index":0,"function":{{"arguments":{self._text(n)}}}}}]}}'
        return f'{{"{self.options.reasoning_field if kind == "reasoning" else "content"}":{self._text(n)}}}'

    def _text(self, n: int) -> str:
        return json.dumps(self.options.word * n)

    def _usage(self, total: int) -> str:
        sum_ = self.prompt_tokens + total
        return f',"usage":{{"prompt_tokens":{self.prompt_tokens},"total_tokens":{sum_},"completion_tokens":{total}}}'

    def _framed(self, choices: str, usage: str) -> bytes:
        return chunk(f"{self.head}{choices}{usage}}}\n\n".encode())
