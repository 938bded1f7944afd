"""What refuses an `up` before it changes anything: pure functions of inventory, recipe and facts."""

from __future__ import annotations

from ipaddress import ip_address
from typing import TYPE_CHECKING

from orchestrator.errors import RefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.model.facts import NodeFacts
    from orchestrator.model.inventory import Inventory, Node
    from orchestrator.model.recipe import Recipe

    Check = Callable[[Inventory, Recipe, Node, NodeFacts], Iterator[RefusedError]]

# Release files, logs of three evidence folders and a state file: some MB. Docker itself needs more.
MIN_FREE_BYTES = 100 * 1024**2
ARCHITECTURES = {"aarch64": "arm64", "x86_64": "amd64"}  # uname -m -> Docker's name


def refusals(
    inventory: Inventory, recipe: Recipe, facts: Mapping[str, NodeFacts]
) -> tuple[RefusedError, ...]:
    """Every reason on every node, in the order of the inventory."""
    return tuple(
        refusal
        for node in inventory.nodes
        for check in _CHECKS
        for refusal in check(inventory, recipe, node, facts[node.name])
    )


def _docker_answers(_: Inventory, __: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    problem = facts.docker.problem
    if not problem:
        return
    if "permission denied" in problem.lower():
        message, hint = (
            f"{facts.user} may not use Docker",
            f"on {node.name}: sudo usermod --append --groups docker {facts.user}   # then log in again",
        )
    elif "not found" in problem:
        message, hint = (
            "there is no docker command in the PATH of a non-interactive login",
            "install Docker, or put its folder into PATH in ~/.ssh/environment or /etc/environment",
        )
    else:
        message, hint = "Docker does not answer", f"on {node.name}: sudo systemctl start docker"
    yield RefusedError(
        message, at=node.name, found=problem, wanted="an answer from the Docker engine", hint=hint
    )


def _image_is_here(_: Inventory, recipe: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    if facts.docker.problem:
        return
    wanted = ARCHITECTURES.get(facts.machine, facts.machine)
    if not facts.image.id:
        yield RefusedError(
            f"the image {recipe.image} is not on {node.name}",
            at=node.name,
            hint=f"ssh {node.ssh} docker pull {recipe.image}",
        )
    elif facts.image.architecture not in ("", wanted):
        yield RefusedError(
            f"the image {recipe.image} is for another processor",
            at=node.name,
            found=facts.image.architecture,
            wanted=wanted,
            hint=f"ssh {node.ssh} docker pull --platform linux/{wanted} {recipe.image}",
        )


def _model_is_here(_: Inventory, recipe: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    if not (recipe.offline or recipe.local_model):
        return  # the engine downloads it
    model, hint = facts.model, _how_to_get_the_model(recipe, node)
    if not model.folder or not model.has_config:
        yield RefusedError(
            f"the model {recipe.model} is not on {node.name}",
            at=node.name,
            found=f"{model.folder} without config.json" if model.folder else "no folder",
            hint=hint,
        )
        return
    missing = sorted(set(model.wanted_weights) - set(model.weights))
    if missing or not model.weights:
        yield RefusedError(
            f"the model {recipe.model} is not complete on {node.name}",
            at=model.folder,
            found=f"{len(missing)} of {len(model.wanted_weights)} weight files missing, {missing[0]} the first"
            if missing
            else "no weight file",
            hint=hint,
        )


def _how_to_get_the_model(recipe: Recipe, node: Node) -> str:
    if recipe.local_model:
        return f"copy the folder to {node.name}, or correct `model:` in the recipe"
    revision = f" --revision {recipe.vllm['revision']}" if "revision" in recipe.vllm else ""
    return f"ssh {node.ssh} hf download {recipe.model}{revision}"


def _fabric_is_up(inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    if not facts.addresses:
        return  # no iproute2 on the node: the supervisor waits for the address, and says so
    problem = _address_problem(node, facts)
    if problem:
        yield problem
    else:
        yield from _ways_off_the_fabric(inventory, node, facts)


def _address_problem(node: Node, facts: NodeFacts) -> RefusedError | None:
    fabric = node.fabric
    found = facts.addresses.get(fabric.interface)
    if found is None:
        return RefusedError(
            f"{node.name} has no interface {fabric.interface}",
            at=node.name,
            found=", ".join(sorted(facts.addresses)),
            wanted=fabric.interface,
            hint="correct fabric.interface in the inventory (`ip -brief address` on the node shows the names)",
        )
    if fabric.ip in found:
        return None
    holder = next((name for name, addresses in facts.addresses.items() if fabric.ip in addresses), "")
    return RefusedError(
        f"{fabric.interface} of {node.name} does not hold {fabric.ip}",
        at=node.name,
        found=f"{fabric.ip} on {holder}" if holder else ", ".join(found) or "no IPv4 address",
        wanted=fabric.ip,
        hint="correct the inventory, or give the interface its address (netplan)",
    )


def _ways_off_the_fabric(inventory: Inventory, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    for peer in inventory.others(node):
        route = facts.routes.get(peer.fabric.ip, "")
        if route != node.fabric.interface:
            yield RefusedError(
                f"{node.name} reaches {peer.fabric.ip} over {route or 'no route'}, not over the fabric",
                at=node.name,
                found=route or "no route",
                wanted=node.fabric.interface,
                hint="give both ends addresses of one subnet that no other interface has",
            )


def _rdma_is_there(inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    if inventory.transport != "rdma":
        return
    missing = [hca for hca in node.fabric.hcas if hca not in facts.hcas]
    if missing:
        yield RefusedError(
            f"{node.name} has no HCA {', '.join(missing)}",
            at=node.name,
            found=", ".join(facts.hcas) or "none in /sys/class/infiniband",
            wanted=", ".join(node.fabric.hcas),
            hint="correct fabric.hcas in the inventory; a port half can be lost by a warm reboot: power-cycle the node",
        )
    if not facts.infiniband_devices:
        yield RefusedError(
            f"{node.name} has no /dev/infiniband: NCCL would fall back to TCP without a word",
            at=node.name,
            hint="sudo modprobe ib_uverbs rdma_ucm   # or install rdma-core",
        )


def _memory_is_ours(inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    for container in facts.containers:
        foreign = container.deployment not in ("", inventory.name)
        if foreign and container.status in ("running", "restarting", "paused"):
            yield RefusedError(
                f"deployment {container.deployment} runs on {node.name}",
                at=node.name,
                found=f"container {container.name}, {container.status}",
                wanted="one deployment per node: two models do not share its memory",
                hint=f"spark-deploy down -i <inventory of {container.deployment}>",
            )


def _name_is_free(inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    name = inventory.container
    for container in facts.containers:
        if container.name == name and container.deployment != inventory.name:
            yield RefusedError(
                f"the container {name} on {node.name} is not of this deployment, and stays",
                at=node.name,
                found=f"{container.status}, {container.deployment or 'none'} in its label spark-deploy.deployment",
                wanted=f"no container of this name, or {inventory.name} in the label",
                hint=f"ssh {node.ssh} docker rename {name} {name}-old   # or docker rm",
            )


def _container_is_of_this_inventory(
    inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts
) -> Iterator[RefusedError]:
    """Under another node name, or another login, its files lie elsewhere: `up` would compare with nothing."""
    wanted = node.paths.state.expanded(facts.home) / inventory.name / node.name
    for container in facts.of(inventory.name):
        if container.folder and container.folder != wanted:
            yield RefusedError(
                f"the container on {node.name} was started under another node name, login or paths.state",
                at=node.name,
                found=f"node {container.node}, files in {container.folder}",
                wanted=f"node {node.name}, files in {wanted}",
                hint=f"spark-deploy down -i {inventory.source}   # takes it down wherever its files lie; then `up`",
            )


def _api_address_is_the_heads(
    inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts
) -> Iterator[RefusedError]:
    bind = ip_address(inventory.api.bind)
    held = {address for addresses in facts.addresses.values() for address in addresses}
    if node.role != "head" or not held or bind.version == 6 or bind.is_loopback or bind.is_unspecified:
        return  # of IPv6 the facts say nothing
    if str(bind) not in held:
        yield RefusedError(
            f"{node.name} does not hold {bind}, where the API shall listen",
            at=node.name,
            found=", ".join(sorted(held)),
            wanted=str(bind),
            hint="correct api.bind in the inventory: 127.0.0.1, 0.0.0.0 or an address of the head",
        )


def _ports_are_free(inventory: Inventory, _: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    if facts.docker.problem or any(container.status == "running" for container in facts.containers):
        return  # the listeners are our own and are stopped first, or another deployment's, which is told above
    wanted = {("udp", inventory.ports.heartbeat): "the supervisors' heartbeat (ports.heartbeat)"}
    if node.role == "head":
        wanted["tcp", inventory.ports.ray] = "Ray (ports.ray)"
        wanted["tcp", inventory.api.port] = "the API (api.port)"
    local = {"0.0.0.0", "*", "[::]", node.fabric.ip, inventory.api.bind}  # noqa: S104  # to compare, not to bind
    for listener in facts.listeners:
        use = wanted.get((listener.protocol, listener.port))
        if use and listener.address in local:
            yield RefusedError(
                f"port {listener.port} on {node.name} is taken, and {use} needs it",
                at=node.name,
                found=f"{listener.process or 'a process of another user'} on {listener.address}:{listener.port}",
                hint=f"ssh {node.ssh} sudo ss -lntup 'sport = :{listener.port}'   # who; or choose another port",
            )


def _disk_has_room(_: Inventory, __: Recipe, node: Node, facts: NodeFacts) -> Iterator[RefusedError]:
    if facts.state_free_bytes < MIN_FREE_BYTES:
        yield RefusedError(
            f"the disk of {node.paths.state} on {node.name} is full",
            at=node.name,
            found=f"{facts.state_free_bytes / 1024**2:.0f} MiB free",
            wanted=f"{MIN_FREE_BYTES / 1024**2:.0f} MiB",
            hint="docker system df   # on the node; or set paths.state to another disk",
        )


_CHECKS: tuple[Check, ...] = (
    _docker_answers,
    _image_is_here,
    _model_is_here,
    _fabric_is_up,
    _rdma_is_there,
    _memory_is_ours,
    _name_is_free,
    _container_is_of_this_inventory,
    _api_address_is_the_heads,
    _ports_are_free,
    _disk_has_room,
)
