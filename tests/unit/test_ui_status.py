"""Every state of a node is told in words a person can act on."""

import json
from dataclasses import replace

import pytest

from orchestrator.model.facts import Container
from orchestrator.model.state import COMING, ENDED, SERVING, NodeState
from orchestrator.ui.status import CONTAINERS, PHASES, StatusRow, explain, serving, show_status, status_json
from tests.unit import supervision
from tests.unit.supervision import Stage

RUNS = Container("spark-deploy-home", "home", "spark-1", "0123456789ab", "running", 0, 0, "sha256:1")
SERVES = NodeState(
    "home",
    "spark-1",
    "head",
    "0123456789ab",
    "serving",
    since=100,
    at=3880,
    attempt_limit=5,
    transport="NET/IB",
)
HEAD = StatusRow("spark-1", "head", SERVES, RUNS)
WORKER = StatusRow("spark-2", "worker", replace(SERVES, node="spark-2", role="worker"), RUNS)


def head(phase="serving", **changes):
    return replace(HEAD, state=replace(SERVES, phase=phase, **changes))


def container(status, **changes):
    return replace(HEAD, container=replace(RUNS, status=status, **changes))


def test_a_pair_serves_when_every_node_says_so():
    """Ready means serving, on both nodes, of one release."""
    assert serving([HEAD, WORKER])


@pytest.mark.parametrize(
    "row",
    [
        head("starting-engine"),
        head(release="ffffffffffff"),
        container("exited"),
        replace(HEAD, container=None),
        replace(HEAD, state=None),
        replace(HEAD, clock=SERVES.at + 16),
        StatusRow("spark-1", "head", error="no route"),
    ],
    ids=["loading", "other release", "exited", "no container", "no state", "silent", "unreachable"],
)
def test_a_pair_does_not_serve_when_one_node_does_not(row):
    """A worker alone answers nobody."""
    assert not serving([row, WORKER])


def test_no_node_serves_nothing():
    """An empty list is not success."""
    assert not serving([])


def phases_of_the_supervisors():
    machines = [Stage(node=node).machine for node in (supervision.HEAD, supervision.WORKER)]
    return {"link-lost"}.union(*(machine._handlers for machine in machines))  # shown, but no state of its own


def test_the_phases_that_are_explained_are_those_of_the_supervisors():
    """A phase without words would reach the operator as jargon."""
    assert set(PHASES) == phases_of_the_supervisors()


def test_every_phase_serves_or_comes_to_it_or_has_ended():
    """One that is none of them would be a broken pair to `up`."""
    assert {SERVING} | COMING | ENDED == phases_of_the_supervisors()


@pytest.mark.parametrize("phase", PHASES)
def test_a_phase_is_shown_by_name_and_in_words(phase):
    """The name is what the log says, the words are what it means."""
    shown = show_status([head(phase, cause="x")])

    assert f" {phase} " in shown
    assert PHASES[phase] in shown


def test_an_unknown_phase_is_shown_as_it_is():
    """A newer supervisor may know more than this version."""
    assert "spark-1: pondering" in show_status([head("pondering")])


def test_a_pair_that_serves_needs_no_words():
    """Nothing to do, nothing to read."""
    assert show_status([HEAD, WORKER]).count("\n") == 3


def test_a_pair_that_gave_up_names_cause_and_last_lines():
    """What the operator needs is in the first look, not in a log on the other machine."""
    state = {
        "cause": "vLLM exited with 1",
        "cause_node": "spark-2",
        "last_lines": ("\x1b[31mCUDA out of memory", ""),
    }
    shown = show_status([head("gave-up", **state)])

    assert "cause (spark-2): vLLM exited with 1" in shown
    assert "    CUDA out of memory\n" in shown


def test_a_container_stopped_by_hand_says_how_it_comes_back():
    """Docker does not restart it, and nobody else will."""
    assert explain(container("exited", exit_code=137)) == (
        "its container was stopped by hand (exit code 137): "
        "`docker start spark-deploy-home` on spark-1, or `spark-deploy up`"
    )


@pytest.mark.parametrize("status", CONTAINERS)
def test_every_state_of_a_container_outweighs_the_last_word_of_its_supervisor(status):
    """state.json outlives the supervisor that wrote it."""
    shown = show_status([container(status)])

    assert f"  {status} " in shown
    assert "serving" not in shown


def test_a_silent_supervisor_is_told_with_its_last_word():
    """A state file older than 15 s on the node's own clock is news of the past."""
    assert "said nothing for 2 min" in explain(replace(HEAD, clock=SERVES.at + 120))


def test_missing_nodes_are_named():
    """`joining` alone does not say who is late."""
    assert "missing: spark-2, spark-3" in explain(head("joining", missing=("spark-2", "spark-3")))


def test_an_unreachable_node_says_why():
    """The rest of the row is unknown, and shown as such."""
    shown = show_status([StatusRow("spark-2", "worker", error="no route to host\ncheck the cable")])

    assert "spark-2  worker  unreachable  -    -        -         -\n" in shown
    assert "spark-2: cannot be reached: no route to host\n  hint check the cable\n" in shown


def test_colours_are_for_terminals_only():
    """A file of `status` has no escapes in it."""
    rows = [HEAD, head("gave-up"), head("joining")]
    coloured = show_status(rows, colour=True)

    assert "\x1b" not in show_status(rows)
    assert [f"\x1b[{code}m" in coloured for code in (32, 33, 31)] == [True, True, True]


def test_no_escape_of_a_node_reaches_the_table():
    """state.json is written on the node."""
    evil = {"progress": "\x1b]0;owned\x07x", "transport": "\x1b[31mNET/IB", "cause": "\x1b[2J"}
    shown = show_status([head("joining", **evil)])

    assert "\x1b" not in shown
    assert "owned" not in shown


def test_json_says_everything_in_one_object_with_a_schema():
    """Monitoring reads `serving` and, when it is false, `explanation`."""
    told = json.loads(status_json([head("gave-up", cause="x"), WORKER], deployment="home"))

    assert (told["schema"], told["deployment"], told["serving"]) == ("spark-deploy/status/v1", "home", False)
    assert [node["status"] for node in told["nodes"]] == ["gave-up", "serving"]
    assert told["nodes"][0]["state"]["cause"] == "x"
    assert told["nodes"][0]["container"]["status"] == "running"
    assert told["nodes"][0]["explanation"].startswith("gave up")


def test_a_node_whose_docker_cannot_be_asked_is_not_said_to_be_empty():
    """Advice to call `up` would be wrong while the pair serves."""
    row = replace(HEAD, container=None, docker_problem="permission denied")

    assert explain(row) == "Docker cannot be asked: permission denied; its supervisor says: serving"
    assert not serving([row, WORKER])


def test_a_cause_with_a_remedy_is_shown_with_it():
    """`see memlock, hcas` left out that TCP can be asked for."""
    cause = "transport is NET/Socket (TCP), wanted NET/IB (RDMA): see /dev/infiniband, memlock, hcas"
    shown = show_status([head("gave-up", cause=cause)])

    assert "\n  hint RDMA needs /dev/infiniband" in shown
    assert "`transport: tcp` in the inventory\n" in shown
