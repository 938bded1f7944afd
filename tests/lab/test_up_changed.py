"""Another release than the one that serves: the difference shown, the question asked, the way back kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .promises import assert_serves, completion, errors, locks, releases
from .terminal import at_a_terminal

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = "sk-old-0123456789abcdef"
NEW_KEY = "sk-new-fedcba9876543210"
OTHER = {"vllm": {"served-model-name": "other"}}


@pytest.fixture
def serving(lab, inventory, spark_deploy) -> Callable[..., None]:
    """`serving()`: a release that calls its model `stub` serves."""

    def serve(**recipe: object) -> None:
        inventory(recipe=recipe)
        done = spark_deploy("up", env={"VLLM_API_KEY": KEY})
        assert done.returncode == 0, done.stderr

    return serve


def test_a_changed_recipe_is_shown_and_replaces_what_serves(lab, inventory, serving, admin_home):
    """
    What changed is on the screen before the question; with a yes the old release is stopped, and the new one serves.
    """
    serving()
    old = releases(lab)
    inventory(recipe=OTHER)

    code, said = at_a_terminal(admin_home, "y", "up")

    assert code == 0
    assert "--- a/spark-a/serve.args\n+++ b/spark-a/serve.args\n" in said
    assert "\n---served-model-name=stub\n+--served-model-name=other\n" in said
    assert said.index("+++ b/spark-a/serve.args") < said.index("[y/N]: y") < said.index("step       lock")
    assert set(releases(lab).values()).isdisjoint(old.values())
    assert_serves(lab, "other")


def test_a_changed_recipe_that_fails_leads_back_to_the_old_release(lab, inventory, serving, spark_deploy):
    """
    Promise 4: it serves again as before, from its own folder, and the new files are gone.
    """
    serving()
    old = releases(lab)
    inventory(recipe={**OTHER, "env": {"LAB_VLLM_EXIT_AT": "weights"}})

    done = spark_deploy("up", "--yes")

    assert done.returncode == 1
    assert errors(done).startswith("Error: vllm exited with 1: safetensors_rust.SafetensorError: ")
    assert errors(done).endswith(f"\n  nodes  release {old['a']} serves again\n")
    assert "Should the new one fail, it is started again." in done.stderr
    assert releases(lab) == old
    folders = lab.run("b", "ls", "/home/op/.spark-deploy/lab/spark-b/releases").split()
    assert folders == [old["b"]]
    assert_serves(lab, "stub")


def test_ctrl_c_while_the_old_release_is_stopped_leads_back_to_it(lab, inventory, serving, admin_home):
    """
    Promise 4, in the one step that only a replacement has.
    """
    serving()
    old = releases(lab)
    inventory(recipe=OTHER)

    up = admin_home.up_until("  step       stop: ", "--yes")

    assert (up.returncode, errors(up).splitlines()[0]) == (130, "Error: interrupted")
    assert errors(up).endswith(f"\n  nodes  release {old['a']} serves again\n")
    assert releases(lab) == old
    assert locks(lab) == []
    assert_serves(lab, "stub")


def test_a_changed_secret_restarts_the_same_release(lab, inventory, serving, spark_deploy):
    """
    Secrets are in no release, but the engine reads them at its start; old and new value stay unseen.
    """
    serving(secrets=["VLLM_API_KEY"])
    old = releases(lab)

    asked = spark_deploy("up", env={"VLLM_API_KEY": NEW_KEY})
    done = spark_deploy("up", "--yes", env={"VLLM_API_KEY": NEW_KEY})

    assert (asked.returncode, done.returncode) == (2, 0)
    assert "\nsecret VLLM_API_KEY changed\n" in done.stderr
    assert releases(lab) == old
    assert completion(lab, key=KEY).endswith("401")
    assert_serves(lab, key=NEW_KEY)
    assert KEY not in asked.stderr + done.stderr + done.stdout
    assert NEW_KEY not in asked.stderr + done.stderr + done.stdout


def test_ctrl_c_while_the_new_release_loads_leads_back_to_the_old_one(lab, inventory, serving, admin_home):
    """
    Changing one's mind costs a restart, not the service.
    """
    serving()
    old = releases(lab)
    inventory(recipe={**OTHER, "env": {"LAB_VLLM_START": "15"}})

    up = admin_home.up_until("(weights ", "--yes")

    assert up.returncode == 130
    assert (
        errors(up)
        == f"Error: interrupted\n  at     load the model\n  nodes  release {old['a']} serves again\n"
    )
    assert releases(lab) == old
    assert_serves(lab)
