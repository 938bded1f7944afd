"""The reference curve, five times as fast, comes back as the server itself recorded it: through the real command line."""

from __future__ import annotations

import json
import os
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

from tests.lab.admin import spark_deploy_program
from tests.truth.client import Truth
from tests.truth.options import REFERENCE
from tests.truth.record import summary

LEVELS = [int(name) for name in REFERENCE]
TOKENS = 40  # and not 300: all five levels in half a minute
ALLOWED = 0.02
FIGURES = {  # path in a repeat of result.json, path in the server's summary
    "aggregate_tok_s": "aggregate_tok_s",
    "decode_tok_s": "decode_tok_s",
    "ttft_s.mean": "ttft_s.mean",
    "tpot_ms.mean": "tpot_ms.mean",
    "itl_ms.p50": "itl_ms.p50",
    "e2e_s.mean": "e2e_s.mean",
}
COUNTS = {"n_ok": "whole", "output_tokens": "tokens", "prompt_tokens": "prompt_tokens"}


def requests_of(level: int) -> int:
    return max(4 * level, 12)  # the default of `--requests`


def test_the_reference_curve_comes_back_within_two_percent(tmp_path: Path) -> None:
    """
    Every figure of every level, and every count exactly: what one deploys for is told as it is.

    The server's record is the measure and not the curve: a busy machine slows both sides of the comparison.
    """
    with Truth(curve=REFERENCE, speed=5) as truth:
        said = sweep(truth, tmp_path)
        records = [one for one in truth.requests() if one["asked"] == TOKENS]
    counted = iter(records[-sum(map(requests_of, LEVELS)) :])  # before them: the cold request

    off = {}
    for level, one in zip(LEVELS, said, strict=True):
        true = summary(list(islice(counted, requests_of(level))))
        off |= {f"{path} at {level}": pair for path, pair in differing(one["repeats"][0], true).items()}

    assert off == {}


def sweep(truth: Truth, folder: Path) -> list[dict[str, Any]]:
    words = ["--url", truth.url, "--model", "gt-model", "--levels", ",".join(map(str, LEVELS))]
    words += ["--output-tokens", str(TOKENS), "--out", str(folder / "out")]
    environment = {**os.environ, "XDG_STATE_HOME": str(folder)}
    subprocess.run([*spark_deploy_program(), "bench", *words], env=environment, check=False)
    return json.loads((folder / "out/result.json").read_text())["levels"]


def differing(said: dict[str, Any], true: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """What was said, and what is true, where they are too far apart."""
    pairs = {ours: (figure(said, ours), figure(true, theirs)) for ours, theirs in (FIGURES | COUNTS).items()}
    return {
        path: (ours, theirs)
        for path, (ours, theirs) in pairs.items()
        if ours is None or abs(ours - theirs) > (ALLOWED * theirs if path in FIGURES else 0)
    }


def figure(found: Any, path: str) -> float:
    for name in path.split("."):
        found = found[name]
    return found
