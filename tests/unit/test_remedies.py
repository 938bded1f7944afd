"""What goes wrong while looking, taking down and asking comes with what to do."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import FileError, StepFailedError, UnreachableError
from orchestrator.load.recipe import load_recipe
from orchestrator.model.plan import Watch
from orchestrator.planning import layout
from orchestrator.planning.steps import plan_down
from orchestrator.remote.host import Outcome
from orchestrator.run.down import take_down
from orchestrator.run.session import Session
from orchestrator.run.status import look
from orchestrator.run.watch import watch
from tests.unit.examples import INVENTORY, RECIPE, state
from tests.unit.fake_host import FakeHost

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.model.event import Event

GONE = UnreachableError("spark-2 cannot be reached", at="spark-2", found="no route")


def test_status_of_a_node_that_is_not_trusted_shows_the_command_that_trusts_it() -> None:
    """`up` showed it, `status`, which one calls first, did not."""
    error = UnreachableError("its host key is not known", at="spark-1 (…)", hint="spark-deploy trust spark-1")

    seen = look(INVENTORY, RECIPE, {}, error)

    assert seen.unreachable["spark-1"] == "its host key is not known\nspark-deploy trust spark-1"


def test_down_where_docker_does_not_answer_says_what_to_start() -> None:
    """`the script failed` was all."""
    hosts = {node.name: FakeHost(node) for node in INVENTORY.nodes}
    hosts["spark-2"].answer("docker version", Outcome(1, "Docker does not answer, so …", ""))
    session = Session(INVENTORY, RECIPE, hosts, lambda _: None)

    with pytest.raises(StepFailedError) as failed:
        take_down(plan_down(INVENTORY), session, found=True)

    assert failed.value.hint == "on the node: sudo systemctl start docker"


def test_up_without_rdma_says_that_tcp_can_be_asked_for() -> None:
    """`see /dev/infiniband, memlock, hcas` left a user without any of them nowhere to go."""
    cause = "transport is NET/Socket (TCP), wanted NET/IB (RDMA): see /dev/infiniband, memlock, hcas"
    host = FakeHost(INVENTORY.head)
    told = {"schema": 1, **asdict(state("gave-up", "0123456789ab", cause=cause))}
    host.files[str(layout.run_folder(INVENTORY, host.node) / "state.json")] = json.dumps(told).encode()
    session = Session(INVENTORY, RECIPE, {host.node.name: host}, lambda _: None)

    with pytest.raises(StepFailedError, match="transport is NET/Socket") as failed:
        watch(Watch("ready", 3600), session)

    assert "`transport: tcp` in the inventory" in (failed.value.hint or "")


@pytest.mark.parametrize(
    ("nodes", "said"), [(("spark-1",), "home is down on spark-1 alone"), ((), "home is down on no node")]
)
def test_down_says_where_it_is_down(nodes: tuple[str, ...], said: str) -> None:
    """`on no node alone` made no sense."""
    told: list[Event] = []
    hosts = {node.name: FakeHost(node) for node in INVENTORY.nodes if node.name in nodes}
    session = Session(INVENTORY, RECIPE, hosts, told.append)
    plan = plan_down(INVENTORY, nodes=tuple(host.node for host in hosts.values()))

    with pytest.raises(UnreachableError):
        take_down(plan, session, found=True, connect_error=GONE)

    assert [event.text for event in told if event.kind == "note"] == [said]


def test_a_key_of_the_inventory_in_a_recipe_is_sent_there(tmp_path: Path) -> None:
    """`transport:` was answered with the list of the recipe's keys."""
    (tmp_path / "tiny.yaml").write_text("model: org/tiny\nimage: example/vllm:1\ntransport: tcp\n")

    with pytest.raises(FileError, match="transport is not a known key") as refused:
        load_recipe(tmp_path / "tiny.yaml")

    assert refused.value.hint == "it belongs in the inventory"


@pytest.mark.parametrize("command", ["down", "logs", "status"])
def test_a_command_that_serves_nothing_does_not_offer_to(command: str) -> None:
    """Its `--recipe` said `Serve this`."""
    shown = CliRunner().invoke(cli, [command, "-h"]).stdout

    assert "Serve this" not in shown
    assert "--recipe NAME|PATH" in shown


def test_a_dry_run_warns_as_up_does(tmp_path: Path) -> None:
    """0.92 went by without a word."""
    (tmp_path / "recipes").mkdir()
    recipe = "model: org/tiny\nimage: example/vllm:1\nvllm: {gpu-memory-utilization: 0.92}\n"
    (tmp_path / "recipes" / "tiny.yaml").write_text(recipe)
    node = "{{ssh: {0}, fabric: {{interface: enp1s0f1np1, ip: 192.168.200.{1}, hcas: [rocep1s0f1]}}}}"
    (tmp_path / "home.yaml").write_text(
        f"name: home\nrecipe: tiny\nhead: {node.format('a', 1)}\nworkers: [{node.format('b', 2)}]\n"
        "api: {bind: 127.0.0.1}\n"
    )

    shown = CliRunner().invoke(cli, ["up", "-i", str(tmp_path / "home.yaml"), "--dry-run"])

    assert shown.exit_code == 0, shown.output
    assert "Warning: gpu-memory-utilization 0.92 is above" in shown.stderr
    assert "Warning" not in shown.stdout
