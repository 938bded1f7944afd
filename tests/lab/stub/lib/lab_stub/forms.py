"""The two ways in which OpenAI's API wraps text."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .wire import Message


class Form:
    """A plain completion's."""

    prefix = "cmpl"
    object = "text_completion"
    chunk_object = "text_completion"

    def __init__(self, model: str) -> None:
        self.head = {
            "id": f"{self.prefix}-{uuid.uuid4().hex[:16]}",
            "created": int(time.time()),
            "model": model,
        }

    def choice(self, text: str) -> Message:
        return {"text": text}

    def delta(self, text: str) -> Message:
        return {"text": text}

    def first(self) -> list[Message]:
        return []

    def whole(self, text: str, usage: Message) -> Message:
        choice = {"index": 0, **self.choice(text), "logprobs": None, "finish_reason": "length"}
        return {**self.head, "object": self.object, "choices": [choice], "usage": usage}

    def piece(self, text: str, finish: str | None) -> Message:
        choice = {"index": 0, **self.delta(text), "logprobs": None, "finish_reason": finish}
        return {**self.head, "object": self.chunk_object, "choices": [choice]}

    def usage(self, usage: Message) -> Message:
        return {**self.head, "object": self.chunk_object, "choices": [], "usage": usage}


class TextForm(Form):
    pass


class ChatForm(Form):
    prefix = "chatcmpl"
    object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def choice(self, text: str) -> Message:
        return {"message": {"role": "assistant", "content": text}}

    def delta(self, text: str) -> Message:
        return {"delta": {"content": text}}

    def first(self) -> list[Message]:
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return [{**self.head, "object": self.chunk_object, "choices": [choice]}]
