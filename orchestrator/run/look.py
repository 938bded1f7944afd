"""What the nodes are like now: facts of all of them, one round trip each, side by side."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from orchestrator.errors import StepFailedError
from orchestrator.planning import layout
from orchestrator.planning.facts import facts_script, parse_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from orchestrator.model.facts import NodeFacts
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.remote.host import Host

    T = TypeVar("T")


def on_all(hosts: Mapping[str, Host], work: Callable[[Host], T]) -> dict[str, T]:
    """Do *work* on every host at once. The first error is raised."""
    if not hosts:
        return {}
    with ThreadPoolExecutor(max_workers=len(hosts)) as pool:
        return dict(zip(hosts, pool.map(work, hosts.values()), strict=True))


def gather_facts(inventory: Inventory, recipe: Recipe, hosts: Mapping[str, Host]) -> dict[str, NodeFacts]:
    """
    Give the facts of every host.

    Raises:
        UnreachableError: a connection was lost.
        StepFailedError: a node did not answer in full.
    """
    return on_all(hosts, lambda host: _facts(inventory, recipe, host))


def _facts(inventory: Inventory, recipe: Recipe, host: Host) -> NodeFacts:
    script = facts_script(inventory, recipe, host.node)
    outcome = host.run(script.text, timeout_s=script.timeout_s)
    try:
        return parse_facts(host.node, outcome.stdout)
    except (ValueError, KeyError) as error:
        raise StepFailedError(
            f"{host.node.name} did not tell what it is: {error}",
            at=host.node.name,
            found=f"exit code {outcome.exit_code}: {outcome.stderr.strip()[-300:] or 'no error output'}",
            hint=f"ssh {host.node.ssh} true   # a login shell that prints or asks something breaks scripts",
        ) from error


def found_secrets(inventory: Inventory, hosts: Mapping[str, Host]) -> dict[str, bytes | None]:
    """Give secrets.env as it is on every node now."""
    return on_all(hosts, lambda host: host.read(layout.run_folder(inventory, host.node) / "secrets.env"))


def running_files(
    inventory: Inventory, hosts: Mapping[str, Host], facts: Mapping[str, NodeFacts]
) -> dict[str, dict[str, bytes]]:
    """Give the files of the release that each node runs: node -> path -> bytes."""

    def read(host: Host) -> dict[str, bytes]:
        container = facts[host.node.name].container(inventory.container)
        if container is None:
            return {}
        folder = layout.releases_folder(inventory, host.node) / container.release
        names = facts[host.node.name].releases.get(container.release, {})
        contents = {name: host.read(folder / name) for name in names}
        return {name: content for name, content in contents.items() if content is not None}

    return on_all(hosts, read)
