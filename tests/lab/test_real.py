"""The main job with the real engine: Ray 2.60 and vLLM 0.32 (CPU build), tensor parallel over two nodes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from .inventory import REAL_RECIPE, write_inventory

if TYPE_CHECKING:
    from .admin import AdminHome
    from .lab import Lab

pytestmark = pytest.mark.real
# Some tens of tokens a second on two cores.
SWEEP = ("--levels", "1,2,4", "--input-tokens", "64", "--output-tokens", "48", "--requests", "8")


@pytest.fixture
def real(real_engine: Lab, admin_home: AdminHome) -> AdminHome:
    write_inventory(
        admin_home, recipe=REAL_RECIPE, recipe_name="tiny", api={"bind": "0.0.0.0"}, transport="tcp"
    )
    return admin_home


def test_a_model_is_served_over_the_fabric_and_nothing_is_left(real_engine: Lab, real: AdminHome) -> None:
    """
    One cold start serves all claims: it costs most of a minute.

    Two nodes with one GPU each have joined by their fabric addresses, a sweep's tokens are those that the server has
    counted and its gates hold, the tensor parallel traffic crosses the fabric and not the management network, and
    `down` leaves nothing but caches.
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

    out = real.home / "out"
    bench = real.spark_deploy("bench", *SWEEP, "--out", out, timeout_s=200)
    result = json.loads((out / "result.json").read_text())
    repeats = [repeat for level in result["levels"] for repeat in level["repeats"]]
    gates = {gate["name"] for repeat in repeats for gate in repeat["gates"] if not gate["ok"]}
    gates -= {"client-lag", "samples"}  # the engine and the client share two cores; 8 requests are few
    assert (bench.returncode in (0, 9), gates) == (True, set()), bench.stdout + bench.stderr
    assert [repeat["n_ok"] for repeat in repeats] == [8, 8, 8]
    assert [repeat["output_tokens"] for repeat in repeats] == [8 * 48] * 3
    assert [repeat["server"]["generation_tokens"] for repeat in repeats] == [8 * 48] * 3
    assert lab.fabric_bytes("a") - fabric_before > 100_000
    assert lab.management_packets() == 0

    assert real.spark_deploy("up").stdout.startswith("already serving")

    down = real.spark_deploy("down")
    assert down.returncode == 0, down.stderr
    assert [lab.leftovers("a"), lab.leftovers("b")] == [[], []]
