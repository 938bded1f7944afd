"""Every shape of a recipe's values, asked of the parsers of `vllm serve` (0.32) and `ray start` (2.60) themselves."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.load.owned import RAY_OWNED, SHORT_FORMS, VLLM_OWNED
from orchestrator.planning.arguments import RAY_BOOLEANS, ray_arguments, serve_arguments
from tests.lab import engine
from tests.lab.need import real_engine_installed
from tests.unit.rendering import load, load_case

PLUGIN = Path(__file__).parents[1] / "lab" / "plugin"
pytestmark = pytest.mark.real

# One process for all questions: importing vLLM takes 8 s, Ray 4 s.
PROGRAM = """
import contextlib, io, json, sys
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser
from ray.scripts.scripts import start

parser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))

def parse(arguments):
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            parsed = vars(parser.parse_args(arguments))
    except SystemExit:
        return {"error": said.getvalue().splitlines()[-1]}
    return json.loads(json.dumps(parsed, default=lambda value: getattr(value, "__dict__", str(value))))

def parse_ray(arguments):
    try:
        return start.make_context("ray start", arguments).params
    except Exception as error:
        return {"error": str(error)}

questions, ray_questions = json.load(sys.stdin)
options = {spelled: action.option_strings for action in parser._actions for spelled in action.option_strings}
answers = [parse(question) for question in questions]
ray_answers = [parse_ray(question) for question in ray_questions]
ray_options = {spelled: bool(option.is_flag) for option in start.params for spelled in option.opts}
answer = {"answers": answers, "options": options, "ray_answers": ray_answers, "ray_options": ray_options}
print("ANSWER " + json.dumps(answer))
"""

LORA = {"base_model_name": None, "is_3d_lora_weight": False}  # what vLLM adds
# as written in a recipe, and what vLLM has to understand
SHAPES: dict[str, tuple[str, Any]] = {
    "flag": ("enforce-eager: true", {"enforce_eager": True}),
    "opposite of a flag": ("enable-prefix-caching: false", {"enable_prefix_caching": False}),
    "bare flag": ("disable-log-stats: true", {"disable_log_stats": True}),
    "whole number": ("max-num-seqs: 4", {"max_num_seqs": 4}),
    "fraction as written": ("gpu-memory-utilization: 0.80", {"gpu_memory_utilization": 0.8}),
    "number with a suffix": ("max-model-len: 64k", {"max_model_len": 64000}),
    "negative number": ("seed: -1", {"seed": -1}),
    "exponent": ("watermark: 1e-2", {"watermark": 0.01}),
    "text": ("reasoning-parser: qwen3", {"reasoning_parser": "qwen3"}),
    "text like a number": ('revision: "1234567"', {"revision": "1234567"}),
    "revision that YAML reads as a number": ("revision: 12e5678", {"revision": "12e5678"}),
    "text like an option": (
        'chat-template: "--host=0.0.0.0"',
        {"chat_template": "--host=0.0.0.0", "host": "127.0.0.1"},
    ),
    "text with spaces and quotes": (
        'chat-template: "{% if x %} \'a\' \\"b\\" {% endif %}"',
        {"chat_template": "{% if x %} 'a' \"b\" {% endif %}"},
    ),
    "text with = and .": ("root-path: /a.b=c", {"root_path": "/a.b=c"}),
    "list of text": ("served-model-name: [one, 'two 2']", {"served_model_name": ["one", "two 2"]}),
    "list of one": ("served-model-name: [one]", {"served_model_name": ["one"]}),
    "list of numbers": ("cudagraph-capture-sizes: [1, 2, 4]", {"cudagraph_capture_sizes": [1, 2, 4]}),
    "list that is JSON": ("allowed-origins: ['https://a', '*']", {"allowed_origins": ["https://a", "*"]}),
    "list of repeated options": ("middleware: [a.b, c.d]", {"middleware": ["a.b", "c.d"]}),
    "list of mappings": (
        "lora-modules: [{name: x, path: /x}, {name: y, path: /y}]",
        {"lora_modules": [{**LORA, "name": "x", "path": "/x"}, {**LORA, "name": "y", "path": "/y"}]},
    ),
    "mapping": (
        "hf-overrides: {rope: {type: yarn, factor: 4.0}, flag: false, none: null}",
        {"hf_overrides": {"rope": {"type": "yarn", "factor": 4.0}, "flag": False, "none": None}},
    ),
    "mapping with a line break in it": (
        'default-chat-template-kwargs: {a: "b\\nc"}',
        {"default_chat_template_kwargs": {"a": "b\nc"}},
    ),
    "speculative config": (
        "speculative-config: {method: mtp, num_speculative_tokens: 2}",
        {"speculative_config": {"method": "mtp", "num_speculative_tokens": 2}},
    ),
    "dotted option": ("hf-overrides.rope.type: yarn", {"hf_overrides": {"rope": {"type": "yarn"}}}),
    "underscores": ("max_num_seqs: 4", {"max_num_seqs": 4}),
}
INVENTORY = {
    "name": "home",
    "head": {"ssh": "spark-1", "fabric": {"interface": "eth1", "ip": "192.168.200.1", "hcas": ["a"]}},
    "workers": [{"ssh": "spark-2", "fabric": {"interface": "eth1", "ip": "192.168.200.2", "hcas": ["a"]}}],
    "api": {"bind": "127.0.0.1", "port": 8000},
}


def written(line: str, folder: Path) -> tuple[str, ...]:
    """Give the serve.args of a recipe with one more line under `vllm`."""
    paths = folder / "inventory.yaml", folder / "tiny.yaml"
    paths[0].write_text(json.dumps(INVENTORY), encoding="utf-8")  # JSON is YAML
    paths[1].write_text(f"model: org/tiny\nimage: a/b:1\nvllm:\n  {line}\n", encoding="utf-8")
    inventory, recipe = load(*paths)
    return serve_arguments(recipe, inventory)


def ray_questions() -> list[tuple[str, ...]]:
    """Give the arguments of `ray start` on both nodes of the crossed pair."""
    inventory, recipe = load_case("crossed")
    recipe = replace(recipe, ray={**recipe.ray, "include-log-monitor": False, "no-redirect-output": True})
    return [ray_arguments(recipe, inventory, node) for node in inventory.nodes]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    real_engine_installed()
    folder = tmp_path_factory.mktemp("recipes")
    questions = [written(line, folder) for line, _meaning in SHAPES.values()]
    environ = {**os.environ, "PYTHONPATH": str(PLUGIN), "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [engine.VENV / "bin" / "python", "-c", PROGRAM],
        input=json.dumps([questions, ray_questions()]),
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    answers = [
        line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")
    ]
    assert answers, done.stderr[-2000:]
    answer: dict[str, Any] = json.loads(answers[-1])
    return answer


@pytest.mark.parametrize("shape", SHAPES)
def test_vllm_understands_what_was_written(asked: dict[str, Any], shape: str) -> None:
    """
    And still listens where the inventory says, over as many nodes as there are.
    """
    meaning = {
        "model_tag": "org/tiny",
        "host": "127.0.0.1",
        "port": 8000,
        "tensor_parallel_size": 2,
        **SHAPES[shape][1],
    }

    parsed = asked["answers"][list(SHAPES).index(shape)]

    assert {name: parsed.get(name, parsed.get("error")) for name in meaning} == meaning


@pytest.mark.parametrize("name", VLLM_OWNED)
def test_every_owned_option_is_one_of_vllms(asked: dict[str, Any], name: str) -> None:
    """
    A renamed option would no longer be refused.
    """
    assert f"--{name}" in asked["options"]


def test_every_short_form_of_vllm_is_known(asked: dict[str, Any]) -> None:
    """
    Else it would be a way around the tool-owned options.
    """
    short = {
        spelled.lstrip("-"): next(long.removeprefix("--") for long in all_ if long.startswith("--"))
        for spelled, all_ in asked["options"].items()
        if not spelled.startswith("--") and spelled != "-h"
    }

    assert short == {name: long for name, long in SHORT_FORMS.items() if name != "O"}


@pytest.mark.parametrize("name", RAY_OWNED)
def test_every_owned_option_is_one_of_rays(asked: dict[str, Any], name: str) -> None:
    """
    A renamed option would no longer be refused.
    """
    assert f"--{name}" in asked["ray_options"]


@pytest.mark.parametrize("name", sorted(RAY_BOOLEANS))
def test_rays_booleans_are_values(asked: dict[str, Any], name: str) -> None:
    """
    All its other booleans are flags.
    """
    assert asked["ray_options"][f"--{name}"] is False


@pytest.mark.parametrize(
    ("rank", "place"),
    [
        (0, {"head": True, "port": 46379, "address": None}),
        (1, {"head": False, "address": "192.168.177.9:46379"}),
    ],
)
def test_ray_understands_its_arguments(asked: dict[str, Any], rank: int, place: dict[str, Any]) -> None:
    """
    On the head and on a worker.
    """
    meaning = {
        "node_ip_address": ("192.168.177.9", "192.168.177.10")[rank],
        "disable_usage_stats": True,
        "block": True,
        "object_store_memory": 1073741824,
        "num_cpus": 4,
        "num_gpus": None,
        "resources": '{"fast":1}',
        "include_log_monitor": False,
        "no_redirect_output": True,
        **place,
    }
    parsed = asked["ray_answers"][rank]

    assert {name: parsed.get(name, parsed.get("error")) for name in meaning} == meaning
