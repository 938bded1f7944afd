"""`down`: container, files and lock gone on every node that answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.planning.steps import plan_down
from orchestrator.run.execute import carry_out
from orchestrator.run.lock import refuse_if_locked
from orchestrator.run.look import gather_facts

if TYPE_CHECKING:
    from orchestrator.errors import SparkDeployError
    from orchestrator.model.plan import Plan
    from orchestrator.run.session import Session


def prepare_down(session: Session, *, break_lock: bool) -> tuple[Plan, bool]:
    """
    Give the plan for the nodes that answer, and whether any container was found.

    Raises:
        LockedError: another run holds the lock of a node.
    """
    inventory = session.inventory
    facts = gather_facts(inventory, session.recipe, session.hosts)
    stale = () if break_lock else refuse_if_locked(facts, session.now())
    found = any(fact.of(inventory.name) for fact in facts.values())
    return plan_down(inventory, break_lock=break_lock or bool(stale), nodes=session.nodes), found


def take_down(
    plan: Plan, session: Session, *, found: bool, connect_error: SparkDeployError | None = None
) -> str:
    """
    Do what can be done, and say what could not.

    Raises:
        UnreachableError: a node did not answer; the others are down.
        StepFailedError: a node kept its container.
    """
    carry_out(plan, session, lambda: None)
    if connect_error:
        where = f"{', '.join(session.hosts)} alone" if session.hosts else "no node"
        session.tell("note", f"{session.inventory.name} is down on {where}")
        raise connect_error
    what = f"{session.inventory.name} is down on {', '.join(session.hosts)}"
    return what if found else f"{what} (nothing was running)"
