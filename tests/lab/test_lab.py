"""The lab keeps its promises: what the other tests stand on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from . import network
from .claim import free_topology
from .lab import Lab
from .shell import wait_for

CHECKOUT = Path(__file__).resolve().parents[2]


# --- nodes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["op", "root"])
def test_a_login_finds_docker(lab, user):
    """
    The docker command is in a non-interactive PATH, and answers for this node.
    """
    answer = lab.ssh("a", "id -un; docker info --format '{{.Name}}'", user=user)

    assert answer.stdout.split() == [user, "spark-a"]


def test_a_user_outside_the_group_may_not_use_docker(lab):
    """
    The case `docker permission denied`.
    """
    answer = lab.ssh("a", "docker ps", user="nodocker")

    assert "permission denied" in answer.stderr


def test_the_fabric_joins_the_nodes_and_nobody_else(lab):
    """
    What must run over the fabric cannot run by accident over the admin's network, nor the reverse.
    """
    from_b = lab.try_run("b", "ping", "-c1", "-W1", "192.168.200.1")
    from_admin = lab.adm(["ping", "-c1", "-W1", "192.168.200.1"])

    assert (from_b.returncode, from_admin.returncode != 0) == (0, True)


def test_a_node_shows_the_sparks_hcas(lab):
    """
    Both twins of the port, each with its own network device, as ibdev2netdev prints them on a Spark.
    """
    printed = lab.run("a", "ibdev2netdev").splitlines()

    assert printed == [
        "roceP2p1s0f1 port 1 ==> enP2p1s0f1np1 (Up)",
        "rocep1s0f1 port 1 ==> enp1s0f1np1 (Up)",
    ]


def test_a_pulled_cable_shows_on_both_ends(lab):
    """
    Two nodes share one cable, as two Sparks do.
    """
    lab.fabric(up=False, key="a")

    wait_for(
        "both devices of b to be down", lambda: lab.run("b", "ibdev2netdev").count("(Down)") == 2, timeout_s=5
    )


# --- containers ---------------------------------------------------------------------------------------


def test_only_a_container_that_asks_for_gpus_gets_one(lab):
    """
    Without `--gpus` Ray finds none, as on a real node.
    """
    show = ["lab/vllm:stub", "sh", "-c", "which nvidia-smi; echo $RAY_OVERRIDE_RESOURCES"]

    assert lab.docker("a", "run", "--rm", "--gpus", "all", *show).split() == [
        "/usr/bin/nvidia-smi",
        '{"GPU":1}',
    ]
    assert lab.docker("a", "run", "--rm", *show) == ""


def test_a_container_sees_its_nodes_boot_id(lab):
    """
    The supervisor counts attempts by boot; the kernel's own id is one for all nodes.
    """
    shown = lab.docker("b", "run", "--rm", "lab/vllm:stub", "cat", "/proc/sys/kernel/random/boot_id")

    assert shown == lab.boot_id("b")


# --- power and engines --------------------------------------------------------------------------------


def test_a_power_cut_keeps_the_disk_and_brings_containers_back(lab):
    """
    Homes and containers with a restart policy survive, /tmp does not, and the boot id is a new one.
    """
    lab.docker(
        "b", "run", "--detach", "--restart", "always", "--name", "stays", "lab/vllm:stub", "sleep", "600"
    )
    lab.ssh("b", "echo kept > kept; echo lost > /tmp/lost")
    before = lab.boot_id("b")

    lab.power_cut("b")
    lab.boot("b")

    wait_for(
        "the container", lambda: lab.docker("b", "ps", "--quiet", "--filter", "name=stays"), timeout_s=10
    )
    assert lab.ssh("b", "cat kept; ls /tmp").stdout.split() == ["kept"]
    assert lab.boot_id("b") != before


def test_a_node_without_power_is_silent(lab):
    """
    No connection is refused: a real machine without power sends no reset.
    """
    lab.power_cut("b")

    knock = "import socket; socket.create_connection(('10.99.1.11', 22), timeout=1)"
    answer = lab.adm([sys.executable, "-c", knock])

    assert answer.stderr.splitlines()[-1] in (
        "TimeoutError: timed out",
        "OSError: [Errno 113] No route to host",
    )
    assert lab.pid("b") == 0


def test_a_killed_dockerd_comes_back(lab):
    """
    Docker's unit restarts it; containers of `--restart always` run afterwards.
    """
    # --init: a new dockerd first stops the container it finds, and a bare `sleep` as PID 1 takes 10 s to die
    flags = ["--detach", "--init", "--restart=always", "--name=stays"]
    lab.docker("a", "run", *flags, "lab/vllm:stub", "sleep", "600")

    lab.restart_engine("a", down_s=0.1)

    wait_for(
        "the container", lambda: lab.docker("a", "ps", "--quiet", "--filter", "name=stays"), timeout_s=20
    )


# --- the admin ----------------------------------------------------------------------------------------


def test_the_admins_openssh_reads_the_admins_home(admin_home):
    """
    Aliases come from an included file, keys are known; OpenSSH goes by the password database, not by $HOME.
    """
    answer = admin_home.run("ssh", "spark-b", "hostname; whoami")

    assert (answer.stdout.split(), answer.stderr) == (["spark-b", "op"], "")


def test_the_jump_host_is_the_only_way_when_told_so(lab, admin_home):
    """
    The third login case.
    """
    with lab.only_by_jump("b"):
        direct = admin_home.run("ssh", "-o", "ConnectTimeout=2", "spark-b", "hostname")
        jumped = admin_home.run("ssh", "spark-b-jump", "hostname")

    assert (direct.returncode, jumped.stdout.strip()) == (255, "spark-b")


def test_a_mistaken_host_key_is_refused_by_openssh(admin_home):
    """
    What the tool must refuse, OpenSSH refuses, too.
    """
    admin_home.mistake_host_key("a")

    answer = admin_home.run("ssh", "spark-a", "hostname")

    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in answer.stderr


def test_logins_are_counted(lab):
    """
    One connection per node for a whole `up`: sshd's log tells.
    """
    before = lab.logins("a", "op")

    lab.ssh("a", "true")

    assert lab.logins("a", "op") == before + 1


# --- the lab itself -----------------------------------------------------------------------------------


def test_labs_run_side_by_side_and_leave_nothing(lab):
    """
    Two sessions on one machine do not meet, and after its end a lab has no process, namespace, mount or cgroup.
    """
    with free_topology() as topology:  # nobody else takes the id while we look
        other = Lab(topology)
        other.up()
        seen = [one.ssh("b", "cat /proc/sys/kernel/random/boot_id").stdout.strip() for one in (lab, other)]
        wanted = [one.boot_id("b") for one in (lab, other)]
        inits = [other.pid(key) for key in ("a", "b", "jump")]
        other.down()

        assert seen == wanted
        assert [pid for pid in inits if Path(f"/proc/{pid}").exists()] == []
        assert [name for name in topology.namespaces if network.namespace_file(name).exists()] == []
        assert str(topology.folder) not in Path("/proc/self/mounts").read_text()
        assert list(Path("/sys/fs/cgroup").glob(f"**/{topology.nodes[0].cgroup}")) == []


def test_three_nodes_share_a_switch(lab_of_three):
    """
    Pulling one node's cable leaves the other two joined.
    """
    lab_of_three.fabric(up=False, key="c")

    reached = [lab_of_three.try_run("a", "ping", "-c1", "-W1", f"192.168.200.{n}").returncode for n in (2, 3)]

    assert (reached[0], reached[1] != 0) == (0, True)


def test_without_root_the_lab_says_so_in_one_line():
    """
    Exit 3 and the reason, no traceback.
    """
    command = ["setpriv", "--reuid=65534", "--clear-groups", "/usr/bin/python3", "-m", "tests.lab", "status"]

    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stderr) == (
        3,
        "lab: the lab needs root: it makes network namespaces, mounts and Docker engines\n",
    )


def test_the_command_line_reaches_a_node(lab):
    """
    What a developer types.
    """
    words = [sys.executable, "-m", "tests.lab", "--id", lab.topology.id, "run", "a", "hostname"]

    assert (
        subprocess.run(words, cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout == "spark-a\n"
    )


@pytest.mark.real
def test_the_real_image_brings_ray_and_vllm(real_engine):
    """
    A 58 MB image whose venv is mounted by the node's runtime.
    """
    shown = real_engine.docker(
        "a", "run", "--rm", "lab/vllm:slim", "sh", "-c", "ray --version; vllm --version"
    )

    assert (shown.splitlines()[0], shown.splitlines()[-1]) == ("ray, version 2.60.0", "0.32.0+cpu")
