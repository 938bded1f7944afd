"""Prompts of an exact length, no two alike: spans of a bundled text behind a beginning that is each one's own."""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from orchestrator.client.abilities import Capabilities
    from orchestrator.model.bench import Load

# vLLM's prefix cache works in blocks of 16 tokens by default; a chat template may shift what is ours by a few.
UNIQUE_TOKENS = 32
SPAN_TOKENS = (64, 256)  # long enough to be natural text, short enough that a long prompt is no repetition
TAILS = 8  # different texts behind the beginnings
CHARACTERS_PER_TOKEN = 4.4  # of English prose, its spaces counted; only where the server has no /tokenize
TRIES = 8
# Each is one token in the vocabularies of today's models, also behind a space, and all are equally long: /tokenize has
# the last word.
WORDS = tuple(
    re.findall(
        r"\w+",
        """
        man day way eye job lot end law car sun sea sky dog cat box cup hat key map pen bed bus boy gas ice leg oil pot
        red row run top war arm art bag bar big air age act add ago ask bad buy cut far few fit fly get god got hot hit
        """,
    )
)


@cache
def prose() -> str:
    """The bundled text, about 1,000 tokens of English."""
    return Path(__file__).with_name("prose.txt").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Corpus:
    """
    What prompts are made of: *ids*, or where the server takes text alone, *words* and *tails*.

    A tail is a text and the number of words that stand before it. *exact*: each prompt has as many tokens as wanted.
    """

    ids: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    tails: tuple[tuple[str, int], ...] = ()
    exact: bool = True


def bodies(
    capabilities: Capabilities, load: Load, *, seed: int, salt: str, count: int | None = None
) -> Iterator[bytes]:
    """
    Give *count* request bodies, or without end; each costs some 0.1 ms.

    The text follows from *seed* alone. The beginnings and the cache salts also follow from *salt*, which has to be
    new for every run: a server that has no cache_salt would else still hold the prompts of the run before.
    """
    ours = re.sub(r"[^A-Za-z0-9._-]", "-", salt)[
        :100
    ]  # LMCache behind vLLM: at most 128 characters, none of @ / \ NUL
    heads, texts = _chance(f"{seed} {salt}"), _chance(seed)
    for index in range(count) if count is not None else itertools.count():
        fields = asked(capabilities, load, f"{ours}-{index}")
        body = {**fields, **_prompt(capabilities, load, heads, texts)}
        yield json.dumps(body, separators=(",", ":")).encode()


def _chance(seed: int | str) -> random.Random:
    return random.Random(seed)  # noqa: S311  # prompts, not secrets


def asked(capabilities: Capabilities, load: Load, salt: str) -> dict[str, Any]:
    """All but the prompt: as many tokens as wanted, and word of each of them."""
    asked: dict[str, Any] = {
        "model": capabilities.model,
        "max_tokens": load.output_tokens,
        "temperature": load.temperature,
        "stream": True,
    }
    if capabilities.ignore_eos:
        asked["ignore_eos"] = True
    if capabilities.min_tokens:
        asked["min_tokens"] = load.output_tokens
    if capabilities.cache_salt:
        asked["cache_salt"] = salt
    if capabilities.token_ids:
        asked["return_token_ids"] = True
    if capabilities.usage:
        continuous = {"continuous_usage_stats": True} if capabilities.continuous_usage else {}
        asked["stream_options"] = {"include_usage": True, **continuous}
    return asked


def _prompt(
    capabilities: Capabilities, load: Load, heads: random.Random, texts: random.Random
) -> dict[str, Any]:
    corpus = capabilities.corpus
    if capabilities.token_prompts and capabilities.endpoint == "completions":
        return {"prompt": token_prompt(corpus.ids, load.prompt_tokens, heads, texts)}
    tail, words = texts.choice(corpus.tails)
    text = text_prompt(heads.choices(corpus.words, k=words), tail)
    return as_asked(text) if capabilities.endpoint == "chat" else {"prompt": text}


def as_asked(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def token_prompt(ids: Sequence[int], size: int, heads: random.Random, texts: random.Random) -> list[int]:
    """Exactly *size* of *ids*: a beginning at random, then spans of the text."""
    prompt = heads.choices(ids, k=min(UNIQUE_TOKENS, size))
    while len(prompt) < size:
        start = texts.randrange(len(ids))
        prompt += ids[start : start + texts.randint(*SPAN_TOKENS)]
    return prompt[:size]


def text_prompt(words: Sequence[str], tail: str) -> str:
    return " ".join(words) + tail


def text_corpus(size: int, count: Callable[[str], int]) -> Corpus:
    """Tails, each with as many words before it as make *size* tokens together, by what *count* says of a text."""
    ruler, chance = _ruler(count), _chance(0)
    tails = tuple(ruler.tail(size, chance) for _ in range(TAILS))
    texts = (text_prompt(chance.choices(ruler.words, k=number), tail) for tail, number in tails)
    return Corpus(words=ruler.words, tails=tails, exact=all(count(text) == size for text in texts))


def estimated_corpus(size: int) -> Corpus:
    """The same where nothing counts tokens: the length is an estimate."""
    heads = min(UNIQUE_TOKENS, size)
    chance = _chance(0)
    tails = [(_text(round((size - heads) * CHARACTERS_PER_TOKEN), chance), heads) for _ in range(TAILS)]
    return Corpus(words=WORDS, tails=tuple(tails), exact=False)


def _ruler(count: Callable[[str], int]) -> _Ruler:
    """Take the words that are one token each; all of them where a tokenizer of bytes has none."""
    extra = count("a") - 1  # special tokens, a chat template
    groups = [WORDS[start : start + 8] for start in range(0, len(WORDS), 8)]
    whole = [word for group in groups if count(" ".join(group)) - extra == len(group) for word in group]
    cost = 1 if whole else round((count(" ".join(WORDS)) - extra) / len(WORDS))
    return _Ruler(count, tuple(whole) or WORDS, cost, len(prose()) / (count(prose()) - extra))


@dataclass(frozen=True)
class _Ruler:
    """Makes texts of a wanted length from *words*, each of *cost* tokens, and prose of *characters* per token."""

    count: Callable[[str], int]
    words: tuple[str, ...]
    cost: int
    characters: float

    def tail(self, size: int, chance: random.Random) -> tuple[str, int]:
        """A text, and the number of words before it that comes nearest to *size* tokens."""
        number = max(1, min(UNIQUE_TOKENS, size) // self.cost)
        tail = _text(round(max(0, size - number * self.cost) * self.characters), chance)
        for _ in range(TRIES):
            missing = size - self.count(text_prompt(chance.choices(self.words, k=number), tail))
            if missing == 0:
                break
            tail, number = self._nearer(tail, number, missing)
        return tail, number

    def _nearer(self, tail: str, number: int, missing: int) -> tuple[str, int]:
        """Words fill up to the token, prose does not: so it is cut by a little too much, but for bytes."""
        if missing > 0 or not tail:
            return tail, max(1, number + missing // self.cost)
        if self.cost > 1:
            return tail[: len(tail) + round(missing * self.characters)], number
        return _cut(tail, len(tail) + round((missing - 2) * self.characters)), number


def _text(characters: int, chance: random.Random) -> str:
    """So many characters of the text, from one word's end on to another's."""
    if characters <= 0:
        return ""
    spaces = [match.start() for match in re.finditer(" ", prose())]
    start = chance.choice(spaces)
    whole = prose()[start:].rstrip() + " " + prose().rstrip() * (characters // len(prose()) + 1)
    return _cut(whole, characters)


def _cut(text: str, characters: int) -> str:
    return text[: max(0, characters)].rpartition(" ")[0]
