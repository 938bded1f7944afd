"""When a starting pair has come to where it shall be, and when it will not."""

from __future__ import annotations

from typing import Any

from orchestrator.checks.progress import ContainerLife, Verdict, judge
from tests.unit.examples import INVENTORY, state


def verdict(until: Any, head: Any, worker: Any, *, elapsed_s: float = 1, **lives: ContainerLife) -> Verdict:
    states = {"spark-1": head, "spark-2": worker}
    named = {name.replace("_", "-"): life for name, life in lives.items()}
    return judge(INVENTORY, until, states, named, elapsed_s=elapsed_s, limit_s=25)


def test_no_word_yet_is_patience() -> None:
    assert verdict("joined", None, None).outcome == "waiting"


def test_the_pair_has_joined_when_the_head_starts_the_engine() -> None:
    """The head starts it only after it saw every expected address with its GPU."""
    assert verdict("joined", state("starting-engine", "r"), state("joined", "r")).outcome == "reached"


def test_ready_means_every_node_serves() -> None:
    assert verdict("ready", state("serving", "r"), state("joined", "r")).outcome == "waiting"
    assert verdict("ready", state("serving", "r"), state("serving", "r")).outcome == "reached"


def test_a_supervisor_that_gave_up_names_node_and_cause() -> None:
    """The cause may lie on the other node."""
    gave_up = state("gave-up", "r", cause="ray start ended", cause_node="spark-2")

    assert verdict("ready", gave_up, state("waiting-head", "r")) == Verdict(
        "failed", "spark-2", "ray start ended"
    )


def test_a_node_that_says_nothing_is_named_when_the_limit_is_over() -> None:
    late = verdict("joined", state("joining", "r", missing=("spark-2",)), None, elapsed_s=26)

    assert (late.outcome, late.node) == ("failed", "spark-2")
    assert "spark-2 did not join the Ray cluster within 25 s" in late.cause


def test_supervisors_that_hear_each_other_judge_the_joining_themselves() -> None:
    """The first `ray start` from a cold disk may take longer than the limit for a silent node."""
    joining, starting = state("joining", "r", missing=("spark-2",)), state("starting-ray", "r")

    assert verdict("joined", joining, starting, elapsed_s=26).outcome == "waiting"
    assert "spark-2 did not join" in verdict("joined", joining, starting, elapsed_s=200).cause


def test_a_worker_that_is_not_heard_at_all_is_named_too() -> None:
    late = verdict("joined", state("waiting-peers", "r"), None, elapsed_s=26)

    assert (late.node, "no word yet" in late.cause) == ("spark-2", True)


def test_a_worker_that_the_head_does_not_hear_is_named_at_the_limit() -> None:
    """Both supervisors live, but nothing passes between them: neither will ever judge."""
    late = verdict("joined", state("waiting-peers", "r"), state("waiting-head", "r"), elapsed_s=26)

    assert (late.outcome, late.node) == ("failed", "spark-2")


def test_a_container_that_is_restarted_again_and_again_is_a_failure() -> None:
    """A supervisor that cannot even start writes no state; Docker's count shows it."""
    dead = verdict("joined", state("booting", "r"), None, spark_2=ContainerLife("restarting", 3))

    assert (dead.outcome, dead.node) == ("failed", "spark-2")
    assert "restarted 3 times" in dead.cause


def test_a_model_that_is_not_ready_in_time_shows_where_it_stands() -> None:
    loading = state("starting-engine", "r", progress="weights 3/7")

    assert "weights 3/7" in verdict("ready", loading, state("joined", "r"), elapsed_s=60).cause


def test_the_head_says_itself_that_the_model_is_late() -> None:
    """Its clock begins after ours, and it has the engine's last lines."""
    loading = state("starting-engine", "r", progress="weights 3/7")

    assert verdict("ready", loading, state("joined", "r"), elapsed_s=26).outcome == "waiting"
