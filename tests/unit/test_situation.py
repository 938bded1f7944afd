"""What `up` makes of what it finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.model.plan import Complete, Endpoint, Script, Upload, UploadSecrets, Watch
from orchestrator.planning.render import render_release
from orchestrator.planning.situation import Standing, knowing_previous, situation
from orchestrator.planning.steps import COMPLETE_LIMIT_S, TOKEN, plan_down, plan_up
from orchestrator.shell import NodePath
from tests.unit.examples import INVENTORY, NOW, RECIPE, container, pair_facts, serving_facts, state

RELEASE = render_release(INVENTORY, RECIPE)
OTHER = render_release(INVENTORY, replace(RECIPE, vllm={"max-model-len": 1024}))


def changed_on(node: str, facts: dict, **changes: object) -> dict:
    return {**facts, node: replace(facts[node], **changes)}


def test_empty_nodes_are_absent() -> None:
    """Nothing runs, so nothing has to be stopped or asked."""
    assert situation(INVENTORY, RELEASE, pair_facts()).standing is Standing.ABSENT


def test_a_container_that_is_not_ours_by_its_label_is_not_what_runs() -> None:
    """Somebody made it by hand under our name: the checks refuse it, nothing compares with it."""
    by_hand = pair_facts(containers=(container("", deployment=""),))

    assert situation(INVENTORY, RELEASE, by_hand).standing is Standing.ABSENT


def test_the_same_bytes_serving_on_all_nodes_need_nothing() -> None:
    """`up` twice is a no-op."""
    now = situation(INVENTORY, RELEASE, serving_facts(RELEASE))

    assert (now.standing, plan_up(INVENTORY, RECIPE, RELEASE, now).steps) == (Standing.SERVING, ())


@pytest.mark.parametrize("phase", ["waiting-peers", "starting-engine", "backing-off", "link-lost"])
def test_a_release_on_its_way_is_only_watched(phase: str) -> None:
    """A laptop that comes back in the middle of a load attaches; it does not start the load again."""
    now = situation(INVENTORY, RELEASE, serving_facts(RELEASE, phase))
    plan = plan_up(INVENTORY, RECIPE, RELEASE, now)

    works = [action.work for step in plan.steps for action in step.actions]
    assert now.standing is Standing.COMING
    assert all(isinstance(work, (Watch, Complete)) for work in works)


def test_another_release_is_stopped_and_can_come_back() -> None:
    """The old release's folder and image are kept for the way back."""
    now = situation(INVENTORY, RELEASE, serving_facts(OTHER))
    plan = plan_up(INVENTORY, RECIPE, RELEASE, now)

    assert (now.standing, now.previous, now.previous_served) == (Standing.OTHER, OTHER.id12, True)
    assert [step.name for step in plan.undo][-4:] == ["start", "join", "ready", "verify"]


def test_another_release_whose_files_are_gone_is_not_promised_to_come_back() -> None:
    """A way back that cannot work would leave one node waiting for the other."""
    facts = changed_on("spark-2", serving_facts(OTHER), releases={})

    now = situation(INVENTORY, RELEASE, facts)
    assert (now.standing, now.previous) == (Standing.OTHER, "")
    assert "not whole on spark-2" in now.why
    assert [step.name for step in plan_up(INVENTORY, RECIPE, RELEASE, now).undo] == ["remove"]


def test_a_renamed_container_is_stopped_after_asking() -> None:
    """It serves, and holds the memory, whatever it is called."""
    renamed = (container(RELEASE.id12, "mine"),)

    now = situation(INVENTORY, RELEASE, changed_on("spark-2", serving_facts(RELEASE), containers=renamed))
    assert (now.standing, now.why) == (Standing.OTHER, "spark-2: its container has another name, mine")
    assert "stop" in [step.name for step in plan_up(INVENTORY, RECIPE, RELEASE, now).steps]


def test_a_release_that_had_given_up_comes_back_without_waiting() -> None:
    """The state before was a pair that does not serve: waiting for it would never end."""
    now = situation(INVENTORY, RELEASE, serving_facts(OTHER, "gave-up"))

    undo = plan_up(INVENTORY, RECIPE, RELEASE, now).undo
    assert not now.previous_served
    assert undo[-1].name == "start"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"containers": ()}, "spark-2: the container is gone"),
        ({"containers": (container(RELEASE.id12, status="exited"),)}, "the container is exited"),
        ({"desired": "down"}, "told to stay down"),
        ({"state": state("gave-up", RELEASE.id12, cause="vLLM exited")}, "gave-up: vLLM exited"),
        ({"state": state("serving", RELEASE.id12, at=NOW - 60)}, "silent for 60 s"),
        ({"releases": {}}, "was changed on the node"),
    ],
)
def test_a_pair_that_does_not_serve_is_started_anew(changes: dict, why: str) -> None:
    """Half a pair, a stopped container, a hand-edited file: none of them is a no-op."""
    now = situation(INVENTORY, RELEASE, changed_on("spark-2", serving_facts(RELEASE), **changes))

    assert now.standing is Standing.BROKEN
    assert why in now.why


def test_a_changed_secret_restarts_the_same_release_and_keeps_its_files() -> None:
    """The way back needs the files that the new start shares with it, and the secret that was there before."""
    now = situation(INVENTORY, RELEASE, serving_facts(RELEASE), secrets_changed=True)

    undo = plan_up(INVENTORY, RECIPE, RELEASE, now).undo
    uploads = [a.work for step in undo for a in step.actions if isinstance(a.work, UploadSecrets)]
    assert now.standing is Standing.SECRETS
    assert "discard" not in [step.name for step in undo]
    assert [upload.restore for upload in uploads] == [True, True]


def test_the_way_back_waits_for_the_old_release_by_its_own_name_port_and_limit() -> None:
    """The new recipe may call its model otherwise, and be given a minute where the old one needs forty."""
    supervise = next(file for file in OTHER.by_node["spark-1"] if file.path == "supervise.json")
    old = supervise.content.replace(b'"port": 8000', b'"port": 8001').replace(
        b'"served_name": "', b'"served_name": "old-'
    )
    now = knowing_previous(situation(INVENTORY, RELEASE, serving_facts(OTHER)), old)

    *_, ready, verify = plan_up(INVENTORY, replace(RECIPE, start_limit_s=60), RELEASE, now).undo
    assert ready.actions[0].work == Watch("ready", RECIPE.start_limit_s)
    assert verify.actions[0].work == Complete(COMPLETE_LIMIT_S, Endpoint("old-org/tiny", "127.0.0.1", 8001))


def test_a_supervise_json_that_nobody_can_read_changes_nothing() -> None:
    now = situation(INVENTORY, RELEASE, serving_facts(OTHER))

    assert knowing_previous(now, b"{}") == knowing_previous(now, None) == now


def test_a_lock_left_behind_is_removed_though_nothing_else_is_done() -> None:
    """Attaching needs no lock; but the one of a dead run would refuse the next who does."""
    serving = situation(INVENTORY, RELEASE, serving_facts(RELEASE))

    plan = plan_up(INVENTORY, RECIPE, RELEASE, serving, break_lock=True)
    assert ([step.name for step in plan.lock], plan.steps) == (["break-lock"], ())


def test_nothing_is_changed_before_the_lock_is_held() -> None:
    """Two operators: the second must leave no trace."""
    plan = plan_up(INVENTORY, RECIPE, RELEASE)

    assert [step.name for step in plan.lock] == ["lock", "lock"]
    assert [action.node for step in plan.lock for action in step.actions] == ["spark-1", "spark-2"]


def test_the_files_are_there_before_the_old_release_is_stopped() -> None:
    """A full disk is found while the old release still serves."""
    now = situation(INVENTORY, RELEASE, serving_facts(OTHER))
    names = [step.name for step in plan_up(INVENTORY, RECIPE, RELEASE, now).steps]

    assert names.index("files") < names.index("stop") < names.index("start")


def test_upload_is_the_release_byte_for_byte() -> None:
    """What is shown is what runs."""
    uploads = [
        a for s in plan_up(INVENTORY, RECIPE, RELEASE).steps for a in s.actions if isinstance(a.work, Upload)
    ]

    assert {a.node: a.work.files for a in uploads} == RELEASE.by_node


def test_the_nodes_get_the_recipes_secrets_and_the_deployments_token() -> None:
    """In the place that the supervisor reads; their values are no part of a plan."""
    plan = plan_up(INVENTORY, replace(RECIPE, secrets=("VLLM_API_KEY",)), RELEASE)

    uploads = [a.work for s in plan.steps for a in s.actions if isinstance(a.work, UploadSecrets)]
    wanted = UploadSecrets(NodePath("~/.spark-deploy/home/spark-1/run"), ("VLLM_API_KEY", TOKEN))
    assert uploads[0] == wanted


def test_equal_input_gives_an_equal_plan() -> None:
    """No clock, no random name, no environment below the world layer."""
    assert plan_up(INVENTORY, RECIPE, RELEASE) == plan_up(
        INVENTORY, RECIPE, render_release(INVENTORY, RECIPE)
    )


def test_down_works_on_the_nodes_that_answer() -> None:
    """A dead node must not keep the other one up."""
    plan = plan_down(INVENTORY, nodes=INVENTORY.workers)

    works = [a for s in (*plan.lock, *plan.steps, *plan.unlock) for a in s.actions]
    assert {a.node for a in works} == {"spark-2"}
    assert all(isinstance(a.work, Script) for a in works)
