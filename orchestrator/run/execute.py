"""Carries a plan out: actions of a step side by side, a barrier between steps, the way back when one fails."""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.diagnosis.cause import hint_for
from orchestrator.errors import (
    InterruptedRunError,
    LockedError,
    ManyError,
    PairLeftAloneError,
    SparkDeployError,
    StepFailedError,
    UnreachableError,
    each,
    one_or_many,
)
from orchestrator.model.plan import Complete, Script, Upload, UploadSecrets, Watch
from orchestrator.planning.facts import parse_holder
from orchestrator.run.complete import complete
from orchestrator.run.lock import locked
from orchestrator.run.secrets import secrets_file
from orchestrator.run.session import signals_noted
from orchestrator.run.watch import have_back, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.model.plan import Action, Plan, Step, Work
    from orchestrator.remote.host import Host, Outcome
    from orchestrator.run.session import Session

POLL_S = 0.1
# A script that is nearly through is let through: `docker run` cut in the middle may leave a container behind
# that nobody waits for.
GRACE_S = 3
UNLOCK_TURNS = 2  # who interrupts twice while a lock is let go means it
DOCKER_USAGE = "Run 'docker run --help'"


def carry_out(plan: Plan, session: Session, save_evidence: Callable[[], None]) -> None:
    """
    Do all steps, or come back to where it began.

    *save_evidence* is called when a step failed, before anything is undone. A second interrupt stops
    the way back too.

    Raises:
        SparkDeployError: the cause; what could not be undone is part of its text.
    """
    with signals_noted(session):
        try:
            _run_steps(plan.lock, session)
            _run_transaction(plan, session, save_evidence)
        finally:
            _unlock(plan, session)


def _run_transaction(plan: Plan, session: Session, save_evidence: Callable[[], None]) -> None:
    try:
        _run_steps(plan.steps, session)
    except PairLeftAloneError:
        save_evidence()
        raise
    except Exception as cause:  # a bug of ours too: whatever it was, the nodes are left as they were
        try:
            save_evidence()
        finally:
            if plan.undo:
                _undo(plan, session, cause)
        raise


def _undo(plan: Plan, session: Session, cause: Exception) -> None:
    session.tell("undo-started", f"{_in_one_line(cause)}: back to the state before")
    session.forget_interrupt()
    problems: list[SparkDeployError] = []
    for step in plan.undo:
        try:
            _run_steps((step,), session)
        except SparkDeployError as error:
            problems.append(error)
            if session.interrupted.is_set() or _taken_over(error):
                break
    causes = each(cause) if isinstance(cause, SparkDeployError) else ()  # a bug of ours
    if problems:
        left = problems[-1] if _taken_over(problems[-1]) else _what_is_left(session, problems)
        raise ManyError((*causes, left)) from cause
    if causes:
        causes[-1].nodes = plan.undone


def _taken_over(error: SparkDeployError) -> bool:
    return any(isinstance(single, LockedError) for single in each(error))


def _what_is_left(session: Session, problems: list[SparkDeployError]) -> SparkDeployError:
    flat = [error for problem in problems for error in each(problem)]
    all_nodes = [node.name for node in session.inventory.nodes]
    failed_on = [name for name in all_nodes if any(error.node == name for error in flat)]
    return SparkDeployError(
        f"the way back was not finished: look at {', '.join(failed_on or all_nodes)}",
        found="; ".join(dict.fromkeys(map(_in_one_line, flat))),
        hint=f"spark-deploy down -i {session.inventory.source}   # removes what is left",
    )


def _in_one_line(error: Exception) -> str:
    return next(iter(str(getattr(error, "message", error)).splitlines()), type(error).__name__)


def _unlock(plan: Plan, session: Session) -> None:
    """Best effort on every node: a lock that stays is named with its holder by the next run."""
    for step in plan.unlock:
        for action in step.actions:
            _let_go(replace(step, actions=(action,)), session)


def _let_go(step: Step, session: Session) -> None:
    """Every node has its turn, and another one when an interrupt fell into it: the script may run twice."""
    node, why = step.actions[0].node, ""
    for _ in range(UNLOCK_TURNS):
        session.forget_interrupt()
        try:
            _run_steps((step,), session, retry=False)
        except SparkDeployError as error:
            why = error.message
            if not isinstance(error, InterruptedRunError):
                break
        else:
            return
    session.tell("warning", f"{node} keeps its lock: {why}", node=node)


def _run_steps(steps: Iterable[Step], session: Session, *, retry: bool = True) -> None:
    for step in steps:
        if session.interrupted.is_set():
            raise InterruptedRunError("interrupted", at=f"before {step.title}")
        began = session.clock()
        session.tell("step-started", step.title, step=step.name)
        _run_step(step, session, retry=retry)
        session.tell("step-done", step=step.name, elapsed_s=round(session.clock() - began, 3))


def _run_step(step: Step, session: Session, *, retry: bool) -> None:
    actions = [action for action in step.actions if action.node in session.hosts]
    with ThreadPoolExecutor(max_workers=max(1, len(actions))) as pool:
        futures = [pool.submit(_run_action, step, action, session, retry=retry) for action in actions]
        interrupted = _await(futures, session)
    errors: list[SparkDeployError] = []
    for error in filter(None, (future.exception() for future in futures)):
        if not isinstance(error, SparkDeployError):
            raise error
        errors.append(error)
    if interrupted:
        raise InterruptedRunError("interrupted", at=step.title)
    if errors:
        raise one_or_many(errors)


def _await(futures: list[Future[None]], session: Session) -> bool:
    """Wait for all, give them a moment when interrupted, then end them. True = interrupted."""
    pending = set(futures)
    while pending and not session.interrupted.is_set():
        _, pending = wait(pending, timeout=POLL_S, return_when=FIRST_EXCEPTION)
    if not session.interrupted.is_set():
        return False
    if pending:
        wait(pending, timeout=GRACE_S)
        session.stop_now()
        wait(pending)
    return True


def _run_action(step: Step, action: Action, session: Session, *, retry: bool) -> None:
    host = session.hosts[action.node]
    began = session.clock()
    session.tell("action-started", action.title, step=step.name, node=action.node)
    try:
        _with_reconnect(action, host, session, retry=retry)
    except SparkDeployError as error:
        error.at = error.at or f"{action.node}: {action.title}"
        session.tell("action-failed", str(error), step=step.name, node=action.node)
        raise
    elapsed_s = round(session.clock() - began, 3)
    session.tell("action-done", action.title, step=step.name, node=action.node, elapsed_s=elapsed_s)


def _with_reconnect(action: Action, host: Host, session: Session, *, retry: bool) -> None:
    """Every script and upload may be done twice; so a link that comes back costs nothing but time."""
    try:
        _do(action.work, host, session)
    except UnreachableError as error:
        if not retry or isinstance(error, PairLeftAloneError):
            raise
        if isinstance(action.work, Complete):
            have_back(host, session)
        else:
            session.reconnect(host)
        _do(action.work, host, session)


def _do(work: Work, host: Host, session: Session) -> None:
    if isinstance(work, Script):
        _run_script(work, host, session)
    elif isinstance(work, Upload):
        for file in work.files:
            host.put(work.folder / file.path, file.content, file.mode)
    elif isinstance(work, UploadSecrets):
        _put_secrets(work, host, session)
    elif isinstance(work, Watch):
        watch(work, session)
    elif isinstance(work, Complete):
        complete(work, session)


def _put_secrets(work: UploadSecrets, host: Host, session: Session) -> None:
    found = session.secrets_found.get(host.node.name)
    content = found if work.restore and found is not None else secrets_file(session.secrets, work.names)
    host.put(work.folder / "secrets.env", content, 0o600)


def _run_script(work: Script, host: Host, session: Session) -> None:
    outcome = host.run(session.with_variables(work.text), timeout_s=work.timeout_s)
    if outcome.exit_code == 0:
        return
    first, *rest = outcome.stdout.splitlines() or [""]
    if first == "locked":
        raise locked(host.node.name, parse_holder(rest), session.now())
    if first == "taken":
        raise LockedError(
            f"another run has taken over the lock on {host.node.name}: nothing more was changed there",
            hint="spark-deploy status   # what runs now",
        )
    if first == "changed":
        raise StepFailedError(
            "the pair changed while this run was being prepared",
            found=f"release {' '.join(rest)}" if any(rest) else "a container of its name that is not ours",
            hint="run the command again: it plans against what runs now",
        )
    said = _last_words(outcome)
    raise StepFailedError(
        f"time ran out after {work.timeout_s:.0f} s" if outcome.exit_code == 124 else "the script failed",
        found=f"exit code {outcome.exit_code}: {said or 'no output'}",
        hint=hint_for(said) or None,
    )


def _last_words(outcome: Outcome) -> str:
    lines = (outcome.stderr.strip() or outcome.stdout.strip()).splitlines()
    return " | ".join([line for line in lines if line and not line.startswith(DOCKER_USAGE)][-4:])
