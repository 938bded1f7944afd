"""What refuses an `up` before it changes anything: exit code, the exact message, and untouched nodes."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from .files import HUB_MODEL, MODEL
from .machine import command_in
from .promises import OP_STATE, assert_as_before, errors, refuse_ssh, run_another_deployment
from .shell import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from .lab import Lab


LISTEN = """\
import socket, sys, time
protocol, address, port = sys.argv[1:]
taken = socket.socket(type=socket.SOCK_DGRAM if protocol == "udp" else socket.SOCK_STREAM)
taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
taken.bind((address, int(port)))
if protocol == "tcp":
    taken.listen()
time.sleep(600)
"""


@contextlib.contextmanager
def listener(lab: Lab, key: str, protocol: str, address: str, port: int) -> Iterator[None]:
    """Somebody else's process of root holds the port."""
    with subprocess.Popen(command_in(lab.node(key), ["python3", "-c", LISTEN, protocol, address, str(port)])):
        look = ["ss", "-Hln", f"--{protocol}", f"sport = :{port}"]
        wait_for(f"port {port}", lambda: lab.run(key, *look), timeout_s=10)
        try:
            yield
        finally:
            lab.run(key, "pkill", "-f", "import socket, sys, time")


@pytest.fixture
def small_disk(lab: Lab) -> Iterator[Callable[[str, str], None]]:
    """`small_disk("b", "size=3m")`: a node's state folder is a file system of its own; as new at the end."""
    mounted = []

    def mount(key: str, options: str) -> None:
        lab.run(key, "install", "-d", "-o", "op", "-g", "op", OP_STATE)
        lab.run(key, "mount", "-t", "tmpfs", "-o", f"{options},uid=2001,gid=2001,mode=700", "tmpfs", OP_STATE)
        mounted.append(key)

    yield mount
    for key in mounted:
        lab.run(key, "umount", "--lazy", OP_STATE)


def test_an_image_that_is_not_there_is_refused_with_the_line_that_brings_it(lab, inventory, spark_deploy):
    """
    `docker run` would pull 20 GB from wherever the name leads, one node at a time.
    """
    inventory(recipe={"image": "lab/vllm:none"})

    done = spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        4,
        "Error: the image lab/vllm:none is not on spark-a\n"
        "  at     spark-a\n"
        "  hint   ssh spark-a docker pull lab/vllm:none\n"
        "Error: the image lab/vllm:none is not on spark-b\n"
        "  at     spark-b\n"
        "  hint   ssh spark-b docker pull lab/vllm:none\n",
    )
    assert_as_before(lab)


def test_a_model_missing_on_the_worker_alone_is_refused_with_the_line_that_brings_it(
    lab, inventory, spark_deploy
):
    """
    The head would load for minutes before the worker's rank finds nothing.
    """
    inventory(recipe={"model": HUB_MODEL})
    lab.run("b", "rm", "-r", "/home/op/.cache/huggingface/hub/models--lab--stub-7b")

    done = spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        4,
        "Error: the model lab/stub-7b is not on spark-b\n"
        "  at     spark-b\n"
        "  found  no folder\n"
        "  hint   ssh spark-b hf download lab/stub-7b\n",
    )
    assert_as_before(lab)


def test_a_model_folder_missing_on_the_worker_is_refused(lab, inventory, spark_deploy):
    """
    No command can bring a folder whose source we do not know.
    """
    inventory()
    lab.run("b", "rm", "-r", MODEL)

    done = spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        4,
        "Error: the model /srv/models/stub is not on spark-b\n"
        "  at     spark-b\n"
        "  found  no folder\n"
        "  hint   copy the folder to spark-b, or correct `model:` in the recipe\n",
    )
    assert_as_before(lab)


def test_a_port_that_is_taken_is_refused_with_the_command_that_names_the_holder(lab, inventory, spark_deploy):
    """
    vLLM finds out only after its minutes of start; the heartbeat would never be heard.
    """
    inventory()
    with listener(lab, "a", "tcp", "127.0.0.1", 8000), listener(lab, "b", "udp", "192.168.200.2", 6378):
        done = spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        4,
        "Error: port 8000 on spark-a is taken, and the API (api.port) needs it\n"
        "  at     spark-a\n"
        "  found  a process of another user on 127.0.0.1:8000\n"
        "  hint   ssh spark-a sudo ss -lntup 'sport = :8000'   # who; or choose another port\n"
        "Error: port 6378 on spark-b is taken, and the supervisors' heartbeat (ports.heartbeat) needs it\n"
        "  at     spark-b\n"
        "  found  a process of another user on 192.168.200.2:6378\n"
        "  hint   ssh spark-b sudo ss -lntup 'sport = :6378'   # who; or choose another port\n",
    )
    assert_as_before(lab)


def test_a_user_who_may_not_use_docker_is_refused_with_the_command_that_lets_him(
    lab, inventory, spark_deploy
):
    """
    The commonest state of a new node.
    """
    inventory(suffix="-nodocker")

    done = spark_deploy("up")

    assert done.returncode == 4
    assert errors(done).count("Error: nodocker may not use Docker\n") == 2
    assert "  found  permission denied while trying to connect to the" in errors(done)
    assert (
        "  hint   on spark-b: sudo usermod --append --groups docker nodocker   # then log in again\n"
        in errors(done)
    )
    assert_as_before(lab)


def test_a_docker_engine_that_is_down_is_refused(lab, inventory, spark_deploy):
    """
    One message for it, and no second one about the image that nobody could look for.
    """
    inventory()

    with lab.stopped_engine("b"):
        done = spark_deploy("up")

    assert done.returncode == 4
    assert errors(done).startswith(
        "Error: Docker does not answer\n  at     spark-b\n  found  Cannot connect to the Docker"
    )
    assert errors(done).endswith("  hint   on spark-b: sudo systemctl start docker\n")
    assert errors(done).count("Error:") == 1
    assert_as_before(lab)


def test_another_deployment_s_container_is_refused(lab, inventory, spark_deploy):
    """
    Two models do not share a node's memory; neither is stopped without being named.
    """
    inventory()
    run_another_deployment(lab, "b")

    done = spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        4,
        "Error: deployment other runs on spark-b\n"
        "  at     spark-b\n"
        "  found  container spark-deploy-other, running\n"
        "  wanted one deployment per node: two models do not share its memory\n"
        "  hint   spark-deploy down -i <inventory of other>\n",
    )
    assert lab.containers("b") == ["spark-deploy-other"]
    assert_as_before(lab, "a")


def test_a_fabric_address_that_the_node_does_not_hold_is_refused(lab, inventory, spark_deploy):
    """
    Lesson 3 from the other end: Ray would register under an address that nobody reaches.
    """
    inventory(worker={"fabric": {"ip": "192.168.200.9"}})

    done = spark_deploy("up")

    assert done.returncode == 4
    assert (
        "Error: enp1s0f1np1 of spark-b does not hold 192.168.200.9\n"
        "  at     spark-b\n"
        "  found  192.168.200.2\n"
        "  wanted 192.168.200.9\n"
        "  hint   correct the inventory, or give the interface its address (netplan)\n"
    ) in errors(done)
    assert_as_before(lab)


def test_a_full_disk_is_refused(lab, inventory, spark_deploy, small_disk):
    """
    A state file that cannot be written is a pair whose phases nobody sees.
    """
    inventory()
    small_disk("b", "size=3m")

    done = spark_deploy("up")

    assert (done.returncode, errors(done)) == (
        4,
        "Error: the disk of ~/.spark-deploy on spark-b is full\n"
        "  at     spark-b\n"
        "  found  3 MiB free\n"
        "  wanted 100 MiB\n"
        "  hint   docker system df   # on the node; or set paths.state to another disk\n",
    )
    assert_as_before(lab)


def test_a_disk_that_fills_up_in_mid_step_is_named_and_undone(lab, inventory, spark_deploy, small_disk):
    """
    SFTP says nothing but `Failure`; what is full is looked up.
    """
    inventory()
    small_disk("b", "size=200m,nr_inodes=8")

    done = spark_deploy("up")

    assert done.returncode == 1
    assert "cannot be written\n" in errors(done)
    assert "  at     spark-b\n" in errors(done)
    assert "/home/op/.spark-deploy is 1% full, its inodes 100%" in errors(done)
    assert_as_before(lab)


def test_a_state_folder_of_another_user_is_named_with_what_gives_it_back(lab, inventory, spark_deploy):
    """
    As after an `up` whose inventory logged in as root with op's home: `Permission denied` was all.
    """
    inventory()
    lab.run("a", "install", "-d", "-o", "root", "-m", "700", f"{OP_STATE}/lab")
    lab.run("a", "chown", "root", OP_STATE)

    up = spark_deploy("up")
    down = spark_deploy("down")

    assert (up.returncode, errors(up)) == (
        1,
        "Error: ~/.spark-deploy/lab/spark-a/run/secrets.env cannot be read\n"
        "  at     spark-a\n"
        "  found  Permission denied\n"
        "  hint   on the node: ls -ld ~/.spark-deploy/lab/spark-a/run   # the user that we log in as must own it\n",
    )
    assert (down.returncode, errors(down)) == (
        1,
        "Error: the script failed\n"
        "  at     spark-a: hold the lock\n"
        f"  found  exit code 1: mkdir: cannot create directory '{OP_STATE}/locks': Permission denied\n"
        "  hint   the folder is another user's; on the node: "
        "sudo chown --recursive $USER ~/.spark-deploy ~/.cache/spark-deploy\n",
    )
    assert lab.containers("a") == lab.containers("b") == []


def test_every_refusal_is_said_at_once(lab, inventory, spark_deploy):
    """
    One round of corrections, not one for each mistake.
    """
    inventory(recipe={"image": "lab/vllm:none"})
    lab.run("b", "rm", "-r", MODEL)

    done = spark_deploy("up")

    assert [line for line in errors(done).splitlines() if line.startswith("Error:")] == [
        "Error: the image lab/vllm:none is not on spark-a",
        "Error: the image lab/vllm:none is not on spark-b",
        "Error: the model /srv/models/stub is not on spark-b",
    ]


def test_a_refusal_as_json_carries_its_exit_code(lab, inventory, spark_deploy):
    """
    A program reads one stream; the message for humans is on the other all the same.
    """
    inventory(recipe={"image": "lab/vllm:none"})

    done = spark_deploy("up", "--output", "json")
    last = json.loads(done.stdout.splitlines()[-1])

    assert (done.returncode, last["kind"], last["data"]["exit_code"]) == (4, "error", 4)
    assert "the image lab/vllm:none is not on spark-b" in last["text"]


# --- unreachable ------------------------------------------------------------------------------------


def test_a_node_that_cannot_be_reached_leaves_the_other_untouched(lab, inventory, spark_deploy):
    """
    Half a pair serves nothing.
    """
    inventory()
    refuse_ssh(lab, "b")

    done = spark_deploy("up")

    assert done.returncode == 5
    assert errors(done) == (
        "Error: spark-b cannot be reached\n"
        "  at     spark-b (10.99.1.11:22)\n"
        "  found  Connection refused\n"
        "  wanted an SSH server at 10.99.1.11:22\n"
        "  hint   is it on, and is the address right?\n"
    )
    assert_as_before(lab)


def test_unreachable_outranks_a_refusal_and_both_are_said(lab, inventory, spark_deploy):
    """
    Exit code 5 over 4: with a node away, what the other lacks is only half of the truth.
    """
    inventory(recipe={"image": "lab/vllm:none"})
    refuse_ssh(lab, "b")

    done = spark_deploy("up")

    assert done.returncode == 5
    assert [line for line in errors(done).splitlines() if line.startswith("Error:")] == [
        "Error: spark-b cannot be reached",
        "Error: the image lab/vllm:none is not on spark-a",
    ]
    assert_as_before(lab)
