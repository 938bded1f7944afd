"""A tokenizer that is none: four characters are a token. Joined texts may have fewer tokens than their parts, as with a real one."""

from __future__ import annotations

from typing import Any

SIZE = 4
FIRST_ID = 256  # ids below it are special
BOS, TEMPLATE = 1, 2
TURN, ANSWER = 4, 3  # template tokens around each message, and before the answer


class Tokenizer:
    """Ids are given as pieces are seen, so that every id can be turned back."""

    def __init__(self) -> None:
        self._ids: dict[str, int] = {}
        self._pieces: dict[int, str] = {}

    def encode(self, text: str, *, bos: bool = False) -> list[int]:
        ids = [self._id(text[start : start + SIZE]) for start in range(0, len(text), SIZE)]
        return [BOS, *ids] if bos else ids

    def decode(self, ids: list[int]) -> str:
        return "".join(self._pieces.get(one, " the" if one >= FIRST_ID else "") for one in ids)

    def chat(self, messages: list[dict[str, Any]], *, answer: bool = True) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids += [TEMPLATE] * TURN + self.encode(content(message))
        return ids + [TEMPLATE] * ANSWER * answer

    def prompt(self, prompt: str | list[Any], *, bos: bool) -> list[int]:
        """A text, token ids, or a list of either."""
        if isinstance(prompt, str):
            return self.encode(prompt, bos=bos)
        if prompt and isinstance(prompt[0], int):
            return prompt
        return [one for part in prompt for one in self.prompt(part, bos=bos)]

    def _id(self, piece: str) -> int:
        number = self._ids.setdefault(piece, FIRST_ID + len(self._ids))
        self._pieces[number] = piece
        return number


def content(message: dict[str, Any]) -> str:
    found = message.get("content") or ""
    return found if isinstance(found, str) else "".join(part.get("text", "") for part in found)
