"""`down`: nothing is left but caches, whoever calls it, in whatever state the nodes are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from .admin import AdminHome
from .inventory import write_inventory
from .promises import CONTAINER, assert_as_before, containers, errors, locks, run_another_deployment
from .shell import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from .lab import Lab


@pytest.fixture
def serving(inventory, spark_deploy) -> None:
    inventory()
    done = spark_deploy("up")
    assert done.returncode == 0, done.stderr


@pytest.fixture
def second_laptop(lab: Lab, tmp_path: Path) -> AdminHome:
    """Another machine with the same inventory, and nothing else: no journal, no state."""
    home = AdminHome(lab, tmp_path / "second").create()
    write_inventory(home)
    return home


@pytest.mark.usefixtures("serving")
def test_down_leaves_nothing_but_caches(lab, spark_deploy):
    """
    The model and the compiled kernels stay: they cost hours, and belong to no release.
    """
    done = spark_deploy("down")

    assert (done.returncode, done.stdout) == (0, "lab is down on spark-a, spark-b\n")
    assert_as_before(lab)
    for key in "ab":
        assert lab.run(key, "ls", "/home/op/.cache").split() == ["huggingface", "spark-deploy"]
        assert lab.run(key, "find", "/home/op/.cache", "!", "-type", "l", "!", "-user", "op") == ""


@pytest.mark.usefixtures("serving")
def test_down_that_is_interrupted_lets_its_lock_go_and_can_be_called_again(lab, admin_home):
    """
    Nothing is put back, as nothing is wanted; the second call finds whatever the first has left.
    """
    with admin_home.background_spark_deploy("down") as down:
        down.wait_for_text("  step       remove: ")
        down.interrupt()
        code = down.wait()

    assert (code, errors(down).splitlines()[0]) == (130, "Error: interrupted")
    assert locks(lab) == []
    assert admin_home.spark_deploy("down").returncode == 0
    assert_as_before(lab)


@pytest.mark.usefixtures("serving")
def test_down_works_from_a_machine_that_never_saw_the_pair(lab, second_laptop):
    """
    All that counts is on the nodes and in the inventory.
    """
    done = second_laptop.spark_deploy("down")

    assert (done.returncode, done.stdout) == (0, "lab is down on spark-a, spark-b\n")
    assert_as_before(lab)


def test_down_where_nothing_runs_says_so(lab, inventory, spark_deploy):
    """
    Twice is as good as once.
    """
    inventory()

    done = spark_deploy("down")

    assert (done.returncode, done.stdout) == (0, "lab is down on spark-a, spark-b (nothing was running)\n")
    assert_as_before(lab)


@pytest.mark.usefixtures("serving")
def test_down_with_a_dead_node_takes_the_other_down(lab, admin_home, spark_deploy):
    """
    Half a pair holds memory and serves nothing. How long a dead node is waited for, ssh_config says.
    """
    (admin_home.ssh / "conf.d/quick.conf").write_text("Host *\n  ConnectTimeout 2\n")
    lab.power_cut("b")

    done = spark_deploy("down")

    assert done.returncode == 5
    assert errors(done).startswith("Error: spark-b cannot be reached\n  at     spark-b (10.99.1.11:22)\n")
    assert errors(done).count("Error: ") == 1
    assert "note       lab is down on spark-a alone" in done.stderr
    assert_as_before(lab, "a")


@pytest.mark.usefixtures("serving")
def test_down_while_docker_is_stopped_keeps_the_pair_down(lab, spark_deploy):
    """
    A container cannot be removed without its engine, and starts again with it: it is told to stay down by then.
    """
    _, serving_since, _ = containers(lab)["b"]

    def stays_down() -> object:
        """Asked of the new start alone: a supervisor that Docker stops says `down`, too."""
        since = lab.docker("b", "inspect", "--format", "{{.State.StartedAt}}", CONTAINER)
        log = lab.docker("b", "logs", "--since", since, CONTAINER)
        return since != serving_since and re.search(r"^\[supervise\] \S+ down", log, re.MULTILINE)

    with lab.stopped_engine("b"):
        done = spark_deploy("down")
    wait_for("the supervisor to be started again and to stay down", stays_down, timeout_s=20)

    assert done.returncode == 1
    assert "Docker does not answer, so the container spark-deploy-lab cannot be removed" in errors(done)
    assert errors(done).count("Error: ") == 1
    assert lab.processes("b", "ray") == []
    assert locks(lab) == []
    assert_as_before(lab, "a")
    assert spark_deploy("down").returncode == 0
    assert_as_before(lab)


@pytest.mark.usefixtures("serving")
def test_down_removes_what_a_killed_supervisor_left_as_root(lab, spark_deploy):
    """
    The container is root; its files are given to the operator, unless it was killed before it could.
    """
    lab.docker(
        "b",
        "exec",
        CONTAINER,
        "sh",
        "-c",
        "mkdir -p /spark-deploy/run/evidence/9/x && touch /spark-deploy/run/evidence/9/x/y",
    )

    done = spark_deploy("down")

    assert done.returncode == 0
    assert_as_before(lab)


def test_down_leaves_another_deployment_alone(lab, inventory, spark_deploy):
    """
    Names are all that tells two deployments apart; the wrong one must not go.
    """
    inventory(name="other", file="other.yaml")
    inventory()
    run_another_deployment(lab, "b")

    done = spark_deploy("down")

    assert done.returncode == 0
    assert lab.containers("b") == ["spark-deploy-other"]


def test_down_removes_a_container_that_was_renamed_and_leaves_a_foreign_one(lab, inventory, spark_deploy):
    """
    Whose a container is stands in its label, not in its name.
    """
    inventory()
    spark_deploy("up")
    lab.docker("b", "rename", CONTAINER, "renamed")
    lab.docker("b", "create", "--name", CONTAINER, "lab/vllm:stub", "true")

    done = spark_deploy("down")

    assert done.returncode == 0
    assert lab.containers("b") == [CONTAINER]
    assert_as_before(lab, "a")
