"""`spark-deploy trust`: make a host's SSH key known, after a look at its fingerprint."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import inventory_option
from orchestrator.cli.question import ask
from orchestrator.errors import Exit, InterruptedRunError, UsageError

if TYPE_CHECKING:
    from orchestrator.model.inventory import Inventory
    from orchestrator.remote.trust import Offer


@click.command()
@click.argument("hosts", metavar="[HOST]...", nargs=-1)
@inventory_option
@click.option(
    "--fingerprint",
    "fingerprints",
    metavar="SHA256:…",
    multiple=True,
    help="Accept exactly this key without asking. Once for each host (and jump host) that is not known yet.",
)
def trust(hosts: tuple[str, ...], inventory: str | None, fingerprints: tuple[str, ...]) -> int:
    """
    Trust a node's SSH host key, after showing its fingerprint.

    HOST is a node of the inventory or anything that ssh takes; without one, all nodes of the inventory.
    Each hop on the way is asked for its key, jump hosts first. The key goes to the first
    UserKnownHostsFile; one that has changed replaces the old line, and FILE.old keeps the file as it was.

    \b
    Example:
      spark-deploy trust spark-1 --fingerprint SHA256:uNiVztksCsDhcc0u9e8BrUhjqDZcT1jLNgFsxRb6iVs
    """  # noqa: D301
    from orchestrator.remote.ssh_config import SshEnvironment, route
    from orchestrator.remote.trust import normal_fingerprint, offers

    wanted = tuple(normal_fingerprint(text) for text in fingerprints)
    environment = SshEnvironment.from_process()
    for name, destination in _destinations(hosts, inventory):
        for offer in offers(route(destination, environment), name):
            if not _settle(offer, wanted):
                click.echo("Declined: nothing was written for it.", err=True)
                return Exit.FAILED
    return Exit.DONE


def _destinations(hosts: tuple[str, ...], inventory: str | None) -> list[tuple[str, str]]:
    """Pairs of the name to show and what ssh calls it."""
    known = _inventory(inventory, needed=not hosts)
    nodes = {node.name: node.ssh for node in known.nodes} if known else {}
    return [(host, nodes.get(host, host)) for host in hosts or nodes]


def _inventory(path: str | None, *, needed: bool) -> Inventory | None:
    """Give the inventory; None: there is none, and a HOST was given."""
    from orchestrator.cli.options import load_inventory_option

    try:
        return load_inventory_option(path)
    except UsageError:
        if needed or path:
            raise
        return None


def _settle(offer: Offer, wanted: tuple[str, ...]) -> bool:
    """Show one hop's key and write it down; False: declined."""
    from orchestrator.remote.trust import other_fingerprint, record

    trusted = offer.verdict.status == "trusted"
    if wanted and offer.key.fingerprint not in wanted and (offer.target or not trusted):
        raise other_fingerprint(offer, wanted)
    click.echo(offer.text, err=not trusted)
    if trusted:
        return True
    if not wanted and not _confirmed(offer):
        return False
    file, others = record(offer)
    click.echo(f"{offer.settings.written} is trusted from now on: {offer.key}, written to {file}")
    for place in others:
        click.echo(f"{place} still vouches for another key of it; remove that line by hand", err=True)
    return True


def _confirmed(offer: Offer) -> bool:
    if not sys.stdin.isatty():
        from orchestrator.remote.strict import trust_command

        raise UsageError(
            "nobody to ask whether this is the right key: standard input is no terminal",
            found=str(offer.key),
            hint=f"compare the fingerprint, then: {trust_command(offer.settings, offer.key)}",
        )
    question = "Replace the known key by this one?" if offer.verdict.entry else "Is this its key?"
    try:
        return ask(question)
    except KeyboardInterrupt:
        raise InterruptedRunError(f"interrupted: nothing was written for {offer.settings.written}") from None
