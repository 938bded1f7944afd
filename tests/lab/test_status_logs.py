"""`status`, `logs` and `plan` where not all is well; a serving pair is looked at in test_up_serving.py."""

from __future__ import annotations

import json

from .promises import CONTAINER, errors, refuse_ssh


def test_status_where_nothing_runs_is_1_and_says_what_starts_it(lab, inventory, spark_deploy):
    """
    Not serving is not an error of `status`, but a script must see it.
    """
    inventory()

    status = spark_deploy("status")

    assert (status.returncode, status.stdout) == (
        1,
        "NODE     ROLE    PHASE         FOR  RELEASE  ATTEMPTS  TRANSPORT\n"
        "spark-a  head    no container  -    -        -         -\n"
        "spark-b  worker  no container  -    -        -         -\n"
        "\n"
        "spark-a: no container of this deployment; `spark-deploy up` starts one\n"
        "spark-b: no container of this deployment; `spark-deploy up` starts one\n",
    )


def test_status_with_an_unreachable_node_is_5_and_shows_the_other(lab, inventory, spark_deploy):
    """
    The node that answers knows most of what happened to the one that does not.
    """
    inventory()
    refuse_ssh(lab, "b")

    status = spark_deploy("status", "--output", "json")
    nodes = {node["node"]: node["status"] for node in json.loads(status.stdout)["nodes"]}

    assert (status.returncode, nodes) == (5, {"spark-a": "no container", "spark-b": "unreachable"})


def test_status_of_a_pair_that_was_stopped_by_hand_says_so(lab, inventory, spark_deploy):
    """
    Docker does not restart what an operator stopped; whoever finds it down must read that.
    """
    inventory()
    assert spark_deploy("up").returncode == 0
    lab.docker("b", "stop", "--time", "2", CONTAINER)

    status = spark_deploy("status")

    assert status.returncode == 1
    assert "spark-b: its container was stopped by hand (exit code " in status.stdout
    assert "`docker start spark-deploy-lab` on spark-b, or `spark-deploy up`" in status.stdout
    again = spark_deploy("up")
    assert again.returncode == 0


def test_logs_where_nothing_runs_names_the_nodes(lab, inventory, spark_deploy):
    """
    An empty answer would look like a silent engine.
    """
    inventory()

    logs = spark_deploy("logs")

    assert (logs.returncode, sorted(errors(logs).splitlines())) == (
        1,
        [
            "  hint   spark-deploy status",
            "  hint   spark-deploy status",
            "Error: spark-a has no container of lab",
            "Error: spark-b has no container of lab",
        ],
    )


def test_plan_on_empty_nodes_says_what_up_would_do(lab, inventory, spark_deploy):
    """
    And `--steps` shows it byte by byte, as the dry run does.
    """
    inventory()

    planned = spark_deploy("plan", "--steps")
    dry_run = spark_deploy("up", "--dry-run")

    first, second, *rest = planned.stdout.splitlines()
    assert planned.returncode == 0
    assert first == "nothing runs: no container of this deployment"
    assert second.startswith("serve release ")
    assert rest == dry_run.stdout.splitlines()


def test_the_dry_run_opens_no_connection(lab, inventory, spark_deploy):
    """
    Promise 1: rendered bytes depend on inventory and recipe alone.
    """
    inventory()
    before = lab.logins("a"), lab.logins("b")
    lab.management("a", up=False)

    shown = spark_deploy("up", "--dry-run")

    assert shown.returncode == 0
    assert (lab.logins("a"), lab.logins("b")) == before
