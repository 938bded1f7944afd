"""What of a container's log tells why it failed."""

from __future__ import annotations

from orchestrator.errors import ManyError, StepFailedError, UnreachableError
from orchestrator.run.evidence import last_attempt
from orchestrator.run.up import explained

ATTEMPT = "[vllm] loading\n[vllm] NCCL INFO Bootstrap: Using eth0"
RATTLE = "[vllm] RuntimeError: cancelled"


def test_what_was_said_after_the_attempt_ended_is_no_cause() -> None:
    """An engine that is killed dies with a traceback of its own."""
    assert last_attempt(f"{ATTEMPT}\n[supervise] 22:21:39 failed not ready in 5 s\n{RATTLE}") == ATTEMPT


def test_only_the_last_attempt_counts() -> None:
    log = f"old\n[supervise] 22:20:00 failed once\n{RATTLE}\n[supervise] 22:20:09 starting-ray\n[supervise] 22:21:39 failed"

    assert last_attempt(log).splitlines()[1:] == [RATTLE, "[supervise] 22:20:09 starting-ray"]


def test_a_log_without_an_end_is_taken_whole() -> None:
    """The time ran out on our side."""
    assert last_attempt(ATTEMPT) == ATTEMPT


def test_without_a_known_cause_the_last_lines_of_each_node_are_shown() -> None:
    """One node's silence is the other's clue."""
    told = explained(
        StepFailedError("not ready in 5 s", at="spark-1"), {"spark-1": ATTEMPT, "spark-2": "[ray] ok"}
    )

    assert str(told) == (
        "not ready in 5 s\n"
        "  at     spark-1\n"
        "  found  the last lines of each node\n"
        "         spark-1: [vllm] loading\n"
        "         spark-1: [vllm] NCCL INFO Bootstrap: Using eth0\n"
        "         spark-2: [ray] ok"
    )


def test_a_script_s_own_words_are_searched_before_the_logs() -> None:
    """Where docker refused there is no log of this start."""
    found = 'exit code 125: docker: could not select device driver "" with capabilities: [[gpu]]'

    told = explained(
        StepFailedError("the script failed", at="spark-2: start", found=found),
        {"spark-1": "CUDA out of memory"},
    )
    assert "it has no NVIDIA runtime" in told.message
    assert told.found == f"spark-2: {found}"


def test_a_lost_node_is_not_explained_by_a_log() -> None:
    lost = ManyError((UnreachableError("the connection to spark-2 is lost"), StepFailedError("left")))

    assert str(explained(lost, {"spark-1": "CUDA out of memory"})) == str(lost)
