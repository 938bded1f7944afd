"""What stops an `up` before anything changes: found, wanted, and a line to paste."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.checks.before_up import refusals
from orchestrator.model.facts import DockerFacts, ImageFacts, Listener, ModelFacts
from orchestrator.model.inventory import Api
from tests.unit.examples import INVENTORY, RECIPE, container, facts, pair_facts

WEIGHTS = ("model-1.safetensors", "model-2.safetensors")


def test_a_healthy_pair_is_not_refused() -> None:
    assert refusals(INVENTORY, RECIPE, pair_facts()) == ()


@pytest.mark.parametrize(
    ("changes", "message", "hint"),
    [
        (
            {"docker": DockerFacts("permission denied while trying to connect to the Docker daemon socket")},
            "op may not use Docker",
            "usermod --append --groups docker op",
        ),
        ({"docker": DockerFacts("bash: docker: command not found")}, "no docker command in the PATH", "PATH"),
        (
            {"docker": DockerFacts("Cannot connect to the Docker daemon")},
            "Docker does not answer",
            "systemctl",
        ),
        ({"image": ImageFacts()}, "the image example/vllm:1 is not on", "docker pull example/vllm:1"),
        ({"image": ImageFacts("sha256:1", "amd64")}, "for another processor", "--platform linux/arm64"),
        ({"model": ModelFacts()}, "the model org/tiny is not on", "hf download org/tiny"),
        ({"model": ModelFacts("/m", True, WEIGHTS[:1], WEIGHTS)}, "not complete", "hf download org/tiny"),
        ({"model": ModelFacts("/m", True, ())}, "not complete", "hf download"),
        ({"addresses": {"eth0": ("10.0.0.1",)}}, "has no interface enp1s0f1np1", "fabric.interface"),
        ({"addresses": {"enp1s0f1np1": (), "eth0": ()}}, "does not hold 192.168.200.", "netplan"),
        (
            {"routes": {"192.168.200.1": "eth0", "192.168.200.2": "eth0"}},
            "over eth0, not over the fabric",
            "subnet",
        ),
        ({"routes": {}}, "over no route", "subnet"),
        ({"hcas": ("rocep1s0f1",)}, "has no HCA roceP2p1s0f1", "power-cycle"),
        ({"infiniband_devices": ()}, "has no /dev/infiniband", "modprobe"),
        (
            {"containers": (container("x", "spark-deploy-lab", deployment="lab"),)},
            "deployment lab runs on",
            "spark-deploy down",
        ),
        (
            {"containers": (container("", deployment=""),)},
            "the container spark-deploy-home on spark-1 is not of this deployment, and stays",
            "docker rename spark-deploy-home",
        ),
        (
            {"listeners": (Listener("tcp", "0.0.0.0", 8000, "nginx"),)},
            "port 8000 on spark-1 is taken",
            "ss -lntup",
        ),
        ({"listeners": (Listener("udp", "*", 6378, ""),)}, "port 6378", "ss -lntup"),
        ({"state_free_bytes": 10}, "is full", "docker system df"),
    ],
)
def test_it_says_what_is_wrong_and_what_to_do(changes: dict, message: str, hint: str) -> None:
    """Each refusal carries the command that mends it."""
    found = refusals(INVENTORY, RECIPE, pair_facts(**changes))

    assert message in found[0].message
    assert hint in (found[0].hint or "")


def test_all_refusals_of_all_nodes_come_at_once() -> None:
    """Mending them one run at a time costs an evening."""
    found = refusals(INVENTORY, RECIPE, pair_facts(image=ImageFacts(), model=ModelFacts()))

    assert [(error.at, error.message.split()[1]) for error in found] == [
        ("spark-1", "image"),
        ("spark-1", "model"),
        ("spark-2", "image"),
        ("spark-2", "model"),
    ]


def test_where_docker_does_not_answer_nothing_is_said_about_what_it_holds() -> None:
    """The image may well be there, and the listener may be our own."""
    silent = pair_facts(
        docker=DockerFacts("no answer"), image=ImageFacts(), listeners=(Listener("tcp", "*", 8000, ""),)
    )

    assert {error.message for error in refusals(INVENTORY, RECIPE, silent)} == {"Docker does not answer"}


def test_a_node_without_iproute2_is_not_refused() -> None:
    """Nothing is known of its addresses: the supervisor waits for the one it needs, and says so."""
    assert refusals(INVENTORY, RECIPE, pair_facts(addresses={}, routes={})) == ()


def test_the_wanted_revision_of_a_model_is_in_the_command_that_gets_it() -> None:
    """Else `main` is downloaded, and still refused."""
    pinned = replace(RECIPE, vllm={"revision": "v1.1"})

    found = refusals(INVENTORY, pinned, pair_facts(model=ModelFacts()))
    assert found[0].hint == "ssh spark-1 hf download org/tiny --revision v1.1"


def test_our_own_listeners_are_not_in_the_way() -> None:
    """The running release is stopped first."""
    ours = pair_facts(containers=(container("old"),), listeners=(Listener("tcp", "127.0.0.1", 8000, ""),))

    assert refusals(INVENTORY, RECIPE, ours) == ()


def test_another_address_on_the_same_port_is_not_in_the_way() -> None:
    """A local proxy on the management address may use the API's port."""
    busy = pair_facts(listeners=(Listener("tcp", "10.0.0.1", 8000, "nginx"),))

    assert refusals(INVENTORY, RECIPE, busy) == ()


def test_tcp_needs_no_hca() -> None:
    """transport: tcp is for machines without RDMA."""
    tcp = replace(INVENTORY, transport="tcp")

    assert refusals(tcp, RECIPE, pair_facts(hcas=(), infiniband_devices=())) == ()


def test_a_model_may_be_missing_when_the_engine_downloads_it() -> None:
    assert refusals(INVENTORY, replace(RECIPE, offline=False), pair_facts(model=ModelFacts())) == ()


def test_a_stopped_container_of_another_deployment_holds_no_memory() -> None:
    stopped = container("x", "spark-deploy-lab", deployment="lab", status="exited")

    assert (
        refusals(INVENTORY, RECIPE, {n.name: facts(n.rank, containers=(stopped,)) for n in INVENTORY.nodes})
        == ()
    )


def test_an_api_address_that_the_head_does_not_hold_is_refused() -> None:
    """Else a serving pair is stopped for a start that ends in `Cannot assign requested address`."""
    elsewhere = replace(INVENTORY, api=Api("10.0.0.99", 8000))

    found = refusals(elsewhere, RECIPE, pair_facts())
    assert [(error.at, error.message) for error in found] == [
        ("spark-1", "spark-1 does not hold 10.0.0.99, where the API shall listen")
    ]


@pytest.mark.parametrize("bind", ["127.0.0.1", "127.1.2.3", "0.0.0.0", "10.0.0.1", "::", "::1", "fd00::1"])
def test_an_api_address_of_the_head_is_fine(bind: str) -> None:
    assert refusals(replace(INVENTORY, api=Api(bind, 8000)), RECIPE, pair_facts()) == ()


def test_a_container_started_under_another_node_name_is_named() -> None:
    """`up` would find no file of it, and show the whole supervisor as a difference."""
    other = container("x", node="sparky", folder="/home/op/.spark-deploy/home/sparky")

    found = refusals(INVENTORY, RECIPE, pair_facts(containers=(other,)))
    assert "was started under another node name, login or paths.state" in found[0].message
    assert "spark-deploy down -i home.yaml" in (found[0].hint or "")


def test_a_port_of_another_deployment_is_not_a_second_error() -> None:
    """Its advice, another port, would be wrong."""
    foreign = container("x", "spark-deploy-lab", deployment="lab")
    busy = pair_facts(containers=(foreign,), listeners=(Listener("tcp", "0.0.0.0", 8000, ""),))

    assert {error.message.split()[0] for error in refusals(INVENTORY, RECIPE, busy)} == {"deployment"}
