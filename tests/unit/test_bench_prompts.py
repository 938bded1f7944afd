"""Prompts: exactly as long as wanted, and no two with the same beginning."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import islice
from typing import Any

from orchestrator.client.abilities import Capabilities
from orchestrator.client.prompts import Corpus, bodies, estimated_corpus, prose, text_corpus
from orchestrator.model.bench import Load

BLOCK = 16  # tokens: vLLM's prefix cache
LOAD = Load(prompt_tokens=512, output_tokens=300)
IDS = tuple(range(1000, 2000))
KNOWN = Capabilities("m", corpus=Corpus(IDS))


def made(known: Capabilities = KNOWN, load: Load = LOAD, **changes: Any) -> list[dict[str, Any]]:
    asked = {"seed": 0, "salt": "run", "count": 50, **changes}
    return [json.loads(body) for body in bodies(known, load, **asked)]


def count(text: str) -> int:
    """A tokenizer as the real ones: a word with the space before it is one token or more; a template adds 11."""
    return 11 + sum(math.ceil(len(word) / 7) for word in text.split(" "))


def test_a_token_prompt_is_exactly_as_long_as_wanted() -> None:
    assert {len(body["prompt"]) for body in made()} == {512}


def test_a_prompt_longer_than_the_text_is_exact_too() -> None:
    assert {len(body["prompt"]) for body in made(load=replace(LOAD, prompt_tokens=8000), count=3)} == {8000}


def test_a_prompt_of_one_token_can_be_asked() -> None:
    assert {len(body["prompt"]) for body in made(load=replace(LOAD, prompt_tokens=1))} == {1}


def test_a_prompt_has_only_tokens_of_the_text() -> None:
    """A special token in the middle would be an end of the text, or worse."""
    assert {token for body in made() for token in body["prompt"]} <= set(IDS)


def test_no_two_prompts_share_their_first_block() -> None:
    """The prefix cache would else answer for the engine, and look fast: 49 times in TTFT was measured."""
    beginnings = {tuple(body["prompt"][:BLOCK]) for body in made(count=1000)}

    assert len(beginnings) == 1000


def test_another_run_has_other_beginnings_and_the_same_text() -> None:
    """A server without cache_salt would still hold the prompts of the run before."""
    one, other = made(salt="one"), made(salt="other")

    assert not {tuple(body["prompt"][:BLOCK]) for body in one} & {
        tuple(body["prompt"][:BLOCK]) for body in other
    }
    assert [body["prompt"][32:] for body in one] == [body["prompt"][32:] for body in other]


def test_the_same_seed_and_salt_ask_the_same() -> None:
    assert made() == made()


def test_every_request_has_a_salt_that_vllm_takes() -> None:
    """vLLM 0.32: at most 128 characters, and none of @ / and backslash."""
    salts = [body["cache_salt"] for body in made(salt="2026-12-01T10:00 @lab/0.5/s " + "x" * 200)]

    assert len(set(salts)) == 50
    assert max(map(len, salts)) <= 128
    assert not set("@/\\\0") & set("".join(salts))


def test_the_answer_is_asked_for_as_long_as_wanted() -> None:
    asked = made(count=1)[0]

    assert {name: asked[name] for name in ("max_tokens", "min_tokens", "ignore_eos", "temperature")} == {
        "max_tokens": 300,
        "min_tokens": 300,
        "ignore_eos": True,
        "temperature": 0,
    }
    assert asked["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}


def test_what_a_server_does_not_take_is_not_sent() -> None:
    plain = replace(
        KNOWN,
        ignore_eos=False,
        min_tokens=False,
        cache_salt=False,
        usage=False,
        continuous_usage=False,
    )

    assert set(made(plain, count=1)[0]) == {"model", "prompt", "max_tokens", "temperature", "stream"}


def test_prompts_without_end_are_made_as_they_are_needed() -> None:
    assert len(list(islice(bodies(KNOWN, LOAD, seed=0, salt="s"), 5))) == 5


def chat(size: int) -> Capabilities:
    corpus = text_corpus(size, count)
    return Capabilities("m", endpoint="chat", token_prompts=False, corpus=corpus)


def test_a_chat_prompt_is_calibrated_to_the_token() -> None:
    known = chat(512)

    counted = {count(body["messages"][0]["content"]) for body in made(known)}

    assert (known.corpus.exact, counted) == (True, {512})


def test_chat_prompts_begin_differently() -> None:
    beginnings = {" ".join(body["messages"][0]["content"].split(" ")[:BLOCK]) for body in made(chat(512))}

    assert len(beginnings) == 50


def test_a_length_that_cannot_be_met_is_not_called_exact() -> None:
    """The template alone is longer than the prompt shall be."""
    assert not chat(5).corpus.exact


def test_words_that_are_no_single_token_are_left_out() -> None:
    def odd(text: str) -> int:
        return count(text) + sum(word in ("sun", "sea") for word in text.split(" "))

    corpus = text_corpus(200, odd)

    assert corpus.exact
    assert not {"sun", "sea"} & set(corpus.words)


def test_a_tokenizer_of_bytes_is_met_exactly_too() -> None:
    corpus = text_corpus(500, lambda text: 7 + len(text))

    known = Capabilities("m", token_prompts=False, corpus=corpus)
    assert corpus.exact
    assert {7 + len(body["prompt"]) for body in made(known)} == {500}


def test_without_a_tokenizer_the_length_is_an_estimate() -> None:
    known = Capabilities("m", token_prompts=False, corpus=estimated_corpus(512))

    assert not known.corpus.exact
    assert all(400 < len(body["prompt"]) / 4.4 < 560 for body in made(known))


def test_the_bundled_text_is_prose() -> None:
    """What a model continues decides how well speculation works: noise would be no fair load."""
    words = prose().split()

    assert 600 < len(words) < 1200
    assert len(set(words)) > 300
