"""Values of a recipe as arguments of `vllm serve` and `ray start`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.planning.arguments import ray_arguments, ray_words, serve_arguments, vllm_words
from tests.unit.rendering import load_case

SHAPES: list[tuple[str, Any, tuple[str, ...]]] = [
    ("enforce-eager", True, ("--enforce-eager",)),
    ("enable-prefix-caching", False, ("--no-enable-prefix-caching",)),
    ("max-model-len", 512, ("--max-model-len=512",)),
    ("gpu-memory-utilization", 0.8, ("--gpu-memory-utilization=0.8",)),
    ("gpu-memory-utilization", "0.80", ("--gpu-memory-utilization=0.80",)),
    ("max-model-len", "64k", ("--max-model-len=64k",)),
    ("seed", -1, ("--seed=-1",)),
    ("chat-template", "{{ bos }} --x", ("--chat-template={{ bos }} --x",)),
    ("served-model-name", ["a", "b c"], ("--served-model-name", "a", "b c")),
    ("cudagraph-capture-sizes", [1, 2, 4], ("--cudagraph-capture-sizes", "1", "2", "4")),
    ("hf-overrides", {"b": 1, "a": [True, None]}, ('--hf-overrides={"b":1,"a":[true,null]}',)),
    ("compilation-config.level", 3, ("--compilation-config.level=3",)),
    ("allowed-origins", ["*"], ('--allowed-origins=["*"]',)),
    ("middleware", ["a.b", "c.d"], ("--middleware=a.b", "--middleware=c.d")),
    ("lora-modules", [{"name": "x", "path": "/x"}], ("--lora-modules", '{"name":"x","path":"/x"}')),
    ("other", [{"a": 1}, {"b": 2}], ('--other=[{"a":1},{"b":2}]',)),
]


@pytest.mark.parametrize(("name", "value", "words"), SHAPES, ids=str)
def test_each_shape_of_a_value_has_one_form(name: str, value: Any, words: tuple[str, ...]) -> None:
    """
    The forms that vLLM 0.32's parser takes (test_serve_args_real.py asks it).
    """
    assert vllm_words(name, value) == words


@pytest.mark.parametrize(
    "value", [None, [], ["a", None], ["-x"], [""], "a\nb", {"a": float("nan")}, float("inf")], ids=repr
)
def test_a_value_without_a_form_is_an_error(value: Any) -> None:
    """
    Never an argument that means something else.
    """
    with pytest.raises(ValueError, match="; "):
        vllm_words("option", value)


def test_negative_numbers_in_a_list_are_no_options() -> None:
    """
    argparse tells -1 from -x.
    """
    assert vllm_words("sizes", [-1, 2]) == ("--sizes", "-1", "2")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("num-cpus", 4, ("--num-cpus=4",)),
        ("resources", {"fast": 1}, ('--resources={"fast":1}',)),
        ("no-redirect-output", True, ("--no-redirect-output",)),
        ("include-log-monitor", False, ("--include-log-monitor=false",)),
    ],
)
def test_ray_takes_the_forms_of_click(name: str, value: Any, words: tuple[str, ...]) -> None:
    """
    Its flags have no opposite, and some booleans are values.
    """
    assert ray_words(name, value) == words


def test_the_model_comes_first_and_the_recipes_options_in_their_order() -> None:
    """
    serve.args reads like the recipe.
    """
    inventory, recipe = load_case("example")

    assert serve_arguments(recipe, inventory) == (
        "Qwen/Qwen3.5-122B-A10B-FP8",
        "--host=127.0.0.1",
        "--port=8000",
        "--distributed-executor-backend=ray",
        "--tensor-parallel-size=2",
        "--gpu-memory-utilization=0.80",
        "--max-model-len=65536",
        "--reasoning-parser=qwen3",
    )


@pytest.mark.parametrize(
    ("options", "tensor"),
    [({}, 3), ({"pipeline-parallel-size": 3}, 1), ({"tensor-parallel-size": 3}, 3)],
    ids=str,
)
def test_tensor_parallel_size_fills_the_nodes(options: dict[str, int], tensor: int) -> None:
    """
    One GPU a node: what the pipeline does not divide, the tensors do.
    """
    inventory, recipe = load_case("three-nodes")

    assert f"--tensor-parallel-size={tensor}" in serve_arguments(replace(recipe, vllm=options), inventory)


def test_a_recipe_may_change_the_object_store() -> None:
    """
    A default of ours, not the tool's own.
    """
    inventory, recipe = load_case("example")
    small = replace(recipe, ray={"object-store-memory": 100_000_000})

    words = ray_arguments(small, inventory, inventory.head)

    assert [word for word in words if word.startswith("--object-store")] == [
        "--object-store-memory=100000000"
    ]


def test_gpus_are_not_given_but_found() -> None:
    """
    A node whose GPU is not there must be missing at the join, not promised.
    """
    inventory, recipe = load_case("example")

    assert not [word for word in ray_arguments(recipe, inventory, inventory.head) if "num-gpus" in word]
