"""The main job with the real engine: Ray 2.60 and vLLM 0.32 (CPU build), tensor parallel over two nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.timing import TOKENS

from .inventory import REAL_RECIPE, write_inventory

if TYPE_CHECKING:
    from .admin import AdminHome
    from .lab import Lab

pytestmark = pytest.mark.real
ROOT = Path(__file__).parents[2]

# One streamed completion from the admin's machine; prints [tokens, seconds to the first, seconds in all].
STREAM = "import json, sys; from tests.timing import stream; print(json.dumps(stream(*sys.argv[1:4])))"


@pytest.fixture
def real(real_engine: Lab, admin_home: AdminHome) -> AdminHome:
    write_inventory(
        admin_home, recipe=REAL_RECIPE, recipe_name="tiny", api={"bind": "0.0.0.0"}, transport="tcp"
    )
    return admin_home


def test_a_model_is_served_over_the_fabric_and_nothing_is_left(real_engine: Lab, real: AdminHome) -> None:
    """
    One cold start serves all claims: it costs most of a minute.

    Two nodes with one GPU each have joined by their fabric addresses, tokens are streamed to the admin, the tensor
    parallel traffic crosses the fabric and not the management network, and `down` leaves nothing but caches.
    """
    lab = real_engine
    lab.count_management_packets()
    fabric_before = lab.fabric_bytes("a")

    up = real.spark_deploy("up", timeout_s=400)
    assert up.returncode == 0, up.stderr
    assert "serving: tiny at http://10.99.1.10:8000/v1, reachable from here" in up.stdout

    status = json.loads(real.spark_deploy("status", "--output", "json").stdout)
    states = {row["node"]: row["state"] for row in status["nodes"]}
    assert status["serving"]
    assert states["spark-a"]["members"] == ["192.168.200.1", "192.168.200.2"]
    assert states["spark-a"]["transport"] == "gloo"

    question = ["http://10.99.1.10:8000/v1", "tiny", "Hello"]
    streamed = real.run(sys.executable, "-c", STREAM, *question, env={"PYTHONPATH": str(ROOT)})
    tokens, first_s, _ = json.loads(streamed.stdout)
    assert (tokens, first_s > 0) == (TOKENS, True), streamed.stderr
    assert lab.fabric_bytes("a") - fabric_before > 100_000
    assert lab.management_packets() == 0

    assert real.spark_deploy("up").stdout.startswith("already serving")

    down = real.spark_deploy("down")
    assert down.returncode == 0, down.stderr
    assert [lab.leftovers("a"), lab.leftovers("b")] == [[], []]
