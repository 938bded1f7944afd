"""`up`: from what runs now to a verified serving pair, or back."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.checks.before_up import refusals
from orchestrator.diagnosis.cause import find_cause
from orchestrator.errors import ManyError, SparkDeployError, StepFailedError, one_or_many
from orchestrator.planning.advice import warnings
from orchestrator.planning.render import render_release
from orchestrator.planning.situation import Situation, Standing, knowing_previous, situation
from orchestrator.planning.steps import plan_up
from orchestrator.run.endpoint import describe_endpoint, healthy, refuse_if_out_of_reach
from orchestrator.run.evidence import fetch_evidence, last_attempt
from orchestrator.run.execute import carry_out
from orchestrator.run.lock import refuse_if_locked
from orchestrator.run.look import found_secrets, gather_facts, running_files
from orchestrator.run.secrets import changed_secrets, with_token
from orchestrator.run.session import signals_noted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.model.facts import NodeFacts
    from orchestrator.model.plan import Plan
    from orchestrator.model.release import Release
    from orchestrator.run.journal import Journal
    from orchestrator.run.session import Session

LAST_LINES = 6
TOOL_UPDATE = "a tool update is available: only run.sh or the supervisor differs; `up --refresh` puts it on"


@dataclass(frozen=True)
class Prepared:
    """What `up` would do, and why."""

    release: Release
    situation: Situation
    plan: Plan
    changed_secrets: tuple[str, ...]
    old_files: Mapping[str, Mapping[str, bytes]]  # node -> path -> bytes of what runs now


def prepare(
    session: Session,
    *,
    break_lock: bool,
    refresh: bool = False,
    connect_error: SparkDeployError | None = None,
) -> Prepared:
    """
    Look at the nodes and plan; changes nothing. Puts the secrets to be used into *session*.

    Raises:
        SparkDeployError: every node that cannot be reached and every check that refuses, at once.
    """
    inventory, recipe = session.inventory, session.recipe
    for warning in warnings(inventory, recipe):
        session.tell("warning", warning)
    facts = gather_facts(inventory, recipe, session.hosts)
    problems = refusals(replace(inventory, nodes=session.nodes), recipe, facts)
    if connect_error:
        raise one_or_many((connect_error, *problems))
    refuse_if_out_of_reach(inventory, session.head)
    changed = _use_secrets(session)
    stale = () if break_lock else refuse_if_locked(facts, session.now())
    if stale:
        session.tell("note", f"the lock on {', '.join(stale)} was left by a run that is no more: taken over")
    old = running_files(inventory, session.hosts, facts)
    release, now = _compare(session, facts, old, secrets_changed=bool(changed), refresh=refresh)
    if now.standing is Standing.SERVING and not healthy(inventory, session.head):
        now = replace(now, standing=Standing.COMING, why="its API does not answer /health with 200")
    if problems and now.standing not in (Standing.SERVING, Standing.COMING):
        raise one_or_many(problems)
    plan = plan_up(inventory, recipe, release, now, break_lock=break_lock or bool(stale))
    return Prepared(release, now, plan, changed, old)


def _use_secrets(session: Session) -> tuple[str, ...]:
    """Complete the session's secrets by the deployment's token, and name those that differ from the nodes'."""
    session.secrets_found = found_secrets(session.inventory, session.hosts)
    session.secrets = with_token(session.secrets, session.secrets_found)
    return changed_secrets(session.secrets, session.secrets_found)


def _compare(
    session: Session,
    facts: Mapping[str, NodeFacts],
    old: Mapping[str, Mapping[str, bytes]],
    *,
    secrets_changed: bool,
    refresh: bool,
) -> tuple[Release, Situation]:
    """Give the release to be put up and what was found; the release that runs, where only this tool is newer."""
    inventory = session.inventory
    release = render_release(inventory, session.recipe)
    now = situation(inventory, release, facts, secrets_changed=secrets_changed)
    if not refresh and _only_tool_update(now, old, release):
        session.tell("note", TOOL_UPDATE)
        release = _as_it_runs(release, old)
        now = situation(inventory, release, facts, secrets_changed=secrets_changed)
    return release, knowing_previous(now, old[inventory.head.name].get("supervise.json"))


def _only_tool_update(now: Situation, old: Mapping[str, Mapping[str, bytes]], release: Release) -> bool:
    """Whether what runs was made from the same inventory and recipe by another version of this tool."""
    if now.standing is not Standing.OTHER or not now.previous_served:
        return False
    wanted = json.loads(release.manifest.content)["inputs_sha256"]
    manifests = [files.get("manifest.json", b"{}") for files in old.values()]
    return all(json.loads(manifest).get("inputs_sha256") == wanted for manifest in manifests)


def _as_it_runs(release: Release, old: Mapping[str, Mapping[str, bytes]]) -> Release:
    """Give the release that runs, from its own files."""
    files = {
        node: tuple(replace(release.manifest, path=path, content=content) for path, content in found.items())
        for node, found in old.items()
    }
    manifest = next(file for file in next(iter(files.values())) if file.path == "manifest.json")
    return replace(release, manifest=manifest, by_node=files)


def bring_up(prepared: Prepared, session: Session, journal: Journal) -> str:
    """
    Carry the plan out, and give the answer: where it serves.

    Raises:
        SparkDeployError: the named cause, with the evidence saved in the journal.
    """
    logs: dict[str, str] = {}

    def save_evidence() -> None:
        logs.update(fetch_evidence(session, journal.save))

    try:
        carry_out(prepared.plan, session, save_evidence)
    except (StepFailedError, ManyError) as error:
        if logs:
            session.tell("note", f"evidence: {journal.folder / 'evidence'}")
        raise explained(error, {node: last_attempt(log) for node, log in logs.items()}) from error
    word = "already serving" if prepared.situation.standing is Standing.SERVING else "serving"
    with signals_noted(session):  # all is done: who interrupts now has the answer all the same
        return f"{word}: {describe_endpoint(session.inventory, session.head, session.recipe.served_name)}"


def explained(error: SparkDeployError, logs: Mapping[str, str]) -> SparkDeployError:
    """Give *error* with the line that shows its cause, or with the last lines of every node."""
    if isinstance(error, ManyError):
        first, *others = error.errors
        return ManyError((explained(first, logs), *others))
    if not isinstance(error, StepFailedError):
        return error
    finding = find_cause({error.node: error.found or ""}) or find_cause(logs)
    if finding is None:
        said = [f"{node}: {line}" for node, log in logs.items() for line in log.splitlines()[-LAST_LINES:]]
        if said and not error.found:
            error.found = "\n         ".join(["the last lines of each node", *said])
        return error
    error.message = f"{error.message}\n  cause  {finding.cause}" if finding.cause else error.message
    error.found = None if finding.quote in error.message else f"{finding.node}: {finding.quote}"
    error.hint = finding.hint or error.hint
    return error
