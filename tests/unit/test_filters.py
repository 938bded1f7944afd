"""The three filters, for any text at all: what goes in comes out on the other side, or is refused."""

from __future__ import annotations

import json
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning.arguments import ray_words, vllm_words
from orchestrator.shell import NodePath, envfile, sh, to_json

# Everything that can be written down in UTF-8; NUL is its own test.
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
steady = settings(derandomize=True, deadline=None, max_examples=100, database=None)


def bash(words: list[str]) -> list[str]:
    """Let bash split one line into words."""
    script = "printf '%s\\0' " + " ".join(words)
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, env={"HOME": "/home/op"})
    return done.stdout.decode().split("\0")[:-1]


@steady
@given(st.lists(TEXT, min_size=1, max_size=20))
def test_sh_gives_bash_the_very_words(words: list[str]) -> None:
    """
    Whatever stands in a value, it is one word and it stays as it is.
    """
    assert bash([sh(word) for word in words]) == words


@steady
@given(TEXT.filter(lambda text: text and not text.startswith("/")))
def test_sh_keeps_only_the_home_of_a_node_path_alive(rest: str) -> None:
    """
    `~/` is the login user's home; the rest of the path is as inert as any word.
    """
    assert bash([sh(NodePath(f"~/{rest}"))]) == [f"/home/op/{rest}"]


@steady
@given(TEXT)
def test_envfile_gives_docker_the_very_value_or_refuses(value: str) -> None:
    r"""
    Docker reads line by line (bufio.ScanLines: \\n, and a \\r before it) and takes what follows the first `=`.
    """
    try:
        line = f"NAME={envfile(value)}\n"
    except ValueError:
        assert "\n" in value or "\r" in value
        return

    assert [row.removesuffix("\r") for row in line.split("\n")] == [f"NAME={value}", ""]


@steady
@given(JSON)
def test_json_gives_back_the_very_value(value: object) -> None:
    """
    On one line, whatever is in it.
    """
    assert json.loads(to_json(value)) == value
    assert "\n" not in to_json(value)


@steady
@given(st.dictionaries(TEXT, st.integers(), min_size=2))
def test_equal_mappings_are_equal_json(mapping: dict[str, int]) -> None:
    """
    The order in which keys were written must not make a new release.
    """
    assert to_json(mapping) == to_json(dict(reversed(mapping.items())))


@steady
@given(JSON)
def test_an_argument_is_one_line_for_every_reader_or_refused(value: object) -> None:
    """
    Python's splitlines knows ten line breaks, others know one: no argument holds any of them.
    """
    for words in (vllm_words, ray_words):
        try:
            made = words("option", value)
        except ValueError:
            continue

        assert [line for word in made for line in word.splitlines()] == list(made)


@pytest.mark.parametrize("filter_", [sh, envfile])
def test_a_nul_is_refused(filter_: object) -> None:
    """
    No argument and no variable can carry one; C would cut the text there.
    """
    with pytest.raises(ValueError, match="NUL"):
        filter_("a\0b")  # type: ignore[operator]
