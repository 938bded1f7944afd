"""A stream counts as an answer only when it is whole."""

from __future__ import annotations

import json

import pytest

from orchestrator.errors import StepFailedError
from orchestrator.run.complete import texts


def chunk(**delta: str) -> str:
    return json.dumps({"choices": [{"delta": delta}]})


def test_the_role_chunk_is_no_token() -> None:
    """Rivals count it as the first token."""
    assert list(texts(iter([chunk(role="assistant", content=""), chunk(content="a"), "[DONE]"]))) == ["a"]


def test_reasoning_counts() -> None:
    """A reasoning model may think through all of a short answer."""
    assert list(texts(iter([chunk(reasoning_content="hm"), chunk(reasoning="so"), "[DONE]"]))) == ["hm", "so"]


def test_plain_completions_count() -> None:
    assert list(texts(iter([json.dumps({"choices": [{"text": "x"}]}), "[DONE]"]))) == ["x"]


def test_a_broken_engine_is_no_success_though_the_stream_ends_with_done() -> None:
    """vLLM answers 200, then an error event, then [DONE]."""
    broken = iter(
        [chunk(content="a"), json.dumps({"error": {"message": "EngineCore encountered an issue."}}), "[DONE]"]
    )

    with pytest.raises(StepFailedError, match="the stream carries an error"):
        list(texts(broken))


def test_a_cut_stream_is_no_success() -> None:
    with pytest.raises(StepFailedError, match="ended without"):
        list(texts(iter([chunk(content="a")])))
