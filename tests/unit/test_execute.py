"""How a plan is carried out: barriers, the way back, interrupts, lost nodes."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import (
    Exit,
    InterruptedRunError,
    LockedError,
    ManyError,
    PairLeftAloneError,
    StepFailedError,
    UnreachableError,
)
from orchestrator.model.inventory import Api
from orchestrator.model.plan import Action, Complete, Plan, Script, Step, UploadSecrets, Watch
from orchestrator.model.release import Release, ReleaseFile
from orchestrator.planning import layout
from orchestrator.planning.situation import Situation, Standing
from orchestrator.remote.host import Outcome
from orchestrator.run.execute import carry_out
from orchestrator.run.journal import Journal
from orchestrator.run.session import Session
from orchestrator.run.up import Prepared, bring_up
from orchestrator.run.watch import watch
from orchestrator.shell import NodePath
from tests.unit.examples import INVENTORY, RECIPE
from tests.unit.fake_host import Clock, FakeHost

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.model.event import Event

BOTH = ("spark-1", "spark-2")


class Run:
    """A session on two hosts in memory, and what it told."""

    def __init__(self) -> None:
        self.hosts = {node.name: FakeHost(node) for node in INVENTORY.nodes}
        self.events: list[Event] = []
        self.saved: list[str] = []
        self.session = Session(INVENTORY, RECIPE, self.hosts, self.events.append, clock=Clock())

    def carry_out(self, plan: Plan) -> None:
        carry_out(plan, self.session, lambda: self.saved.append("evidence"))

    def scripts(self, node: str = "spark-1") -> list[str]:
        return self.hosts[node].scripts


@pytest.fixture
def run() -> Run:
    return Run()


def step(name: str, nodes: tuple[str, ...] = BOTH, work: Any = None) -> Step:
    return Step(name, name, tuple(Action(node, name, work or Script(name, 5)) for node in nodes))


def plan(*steps: str, undo: tuple[str, ...] = ("undo",)) -> Plan:
    return Plan(
        "a plan",
        tuple(step(name) for name in steps),
        undo=tuple(step(name) for name in undo),
        lock=(step("lock"),),
        unlock=(step("unlock"),),
    )


def state_json(phase: str, release: str) -> bytes:
    return json.dumps({"schema": 1, "phase": phase, "release": release}).encode()


def test_steps_run_in_order_between_lock_and_unlock(run: Run) -> None:
    run.carry_out(plan("one", "two"))

    assert run.scripts("spark-1") == run.scripts("spark-2") == ["lock", "one", "two", "unlock"]


def test_a_step_waits_for_the_slowest_node(run: Run) -> None:
    """The head must not start before the worker has its files."""
    seen: list[str] = []
    first_is_there = threading.Event()

    def slow(_: str) -> Outcome:
        first_is_there.wait(5)
        seen.append("slow one")
        return Outcome(0, "", "")

    def quick(_: str) -> Outcome:
        first_is_there.set()
        return Outcome(0, "", "")

    run.hosts["spark-1"].answer("one", slow)
    run.hosts["spark-2"].answer("one", quick)
    run.hosts["spark-2"].answer("two", lambda _: seen.append("two") or Outcome(0, "", ""))
    run.carry_out(plan("one", "two"))

    assert seen == ["slow one", "two"]


def test_a_failed_step_leads_back_and_unlocks(run: Run) -> None:
    """Nothing half-alive holds memory on a node; and the evidence is fetched before it is removed."""
    run.hosts["spark-2"].answer("two", Outcome(1, "", "no such image"))

    with pytest.raises(StepFailedError, match="the script failed") as raised:
        run.carry_out(plan("one", "two", "three"))

    assert run.scripts("spark-1") == ["lock", "one", "two", "undo", "unlock"]
    assert run.saved == ["evidence"]
    assert (raised.value.at, raised.value.found) == ("spark-2: two", "exit code 1: no such image")


def test_a_bug_of_ours_leads_back_too(run: Run) -> None:
    """Its traceback is shown all the same; but no pair stays half-alive because of it."""
    run.hosts["spark-1"].answer("one", ZeroDivisionError("ours"))

    with pytest.raises(ZeroDivisionError):
        run.carry_out(plan("one", "two"))

    assert run.scripts("spark-2") == ["lock", "one", "undo", "unlock"]


def test_evidence_that_cannot_be_fetched_does_not_stop_the_way_back(run: Run) -> None:
    run.hosts["spark-1"].answer("one", Outcome(1, "", "x"))

    with pytest.raises(ZeroDivisionError):
        carry_out(plan("one"), run.session, lambda: print(1 // 0))

    assert run.scripts("spark-2") == ["lock", "one", "undo", "unlock"]


def test_a_failed_lock_changes_nothing_and_undoes_nothing(run: Run) -> None:
    """Undoing would take down the other operator's pair."""
    run.hosts["spark-2"].answer("lock", Outcome(6, 'locked\n{"run": "x", "user": "ann"}\n', ""), once=True)

    with pytest.raises(LockedError, match="spark-2 is locked: by ann"):
        run.carry_out(plan("one"))

    assert run.scripts("spark-1") == ["lock", "unlock"]


def test_failures_of_both_nodes_are_told_together(run: Run) -> None:
    for host in run.hosts.values():
        host.answer("one", Outcome(1, "", "disk full"))

    with pytest.raises(ManyError) as raised:
        run.carry_out(plan("one"))

    assert [error.at for error in raised.value.errors] == ["spark-1: one", "spark-2: one"]


def test_what_cannot_be_undone_is_said_with_the_command_that_removes_it(run: Run) -> None:
    run.hosts["spark-1"].answer("one", Outcome(1, "", "x"))
    run.hosts["spark-1"].answer("undo", Outcome(1, "", "Docker does not answer"))

    with pytest.raises(ManyError, match="the way back was not finished") as raised:
        run.carry_out(plan("one"))

    assert "spark-deploy down -i home.yaml" in str(raised.value)
    assert "look at spark-1\n" in str(raised.value)


def test_a_run_whose_lock_was_taken_over_undoes_nothing(run: Run) -> None:
    """What is on the nodes now is the other run's: it may serve."""
    run.hosts["spark-1"].answer("two", Outcome(1, "", "boom"))
    for host in run.hosts.values():
        host.answer("undo", Outcome(6, "taken\n", ""))

    with pytest.raises(ManyError) as raised:
        run.carry_out(plan("one", "two", undo=("undo", "remove")))

    assert raised.value.exit_code == Exit.LOCKED
    assert "the script failed" in str(raised.value)
    assert "another run has taken over the lock on spark-1: nothing more was changed there" in str(
        raised.value
    )
    assert "remove" not in run.scripts("spark-2")


def test_a_release_that_another_run_put_there_is_not_taken_for_ours(run: Run) -> None:
    """Else `up` would say that it serves what somebody else serves."""
    paths = [str(layout.run_folder(INVENTORY, host.node) / "state.json") for host in run.hosts.values()]
    for path, host in zip(paths, run.hosts.values(), strict=True):
        host.files[path] = state_json("starting-engine", "aaaaaaaaaaaa")
        host.answer("docker inspect", Outcome(0, "running 0\n", ""))

    def replaced(_event: Event) -> None:
        for path, host in zip(paths, run.hosts.values(), strict=True):
            host.files[path] = state_json("serving", "bbbbbbbbbbbb")

    run.session.sink = replaced
    with pytest.raises(StepFailedError, match="another run has put another release there"):
        watch(Watch("ready", 3600), run.session)


def test_a_script_that_ran_out_of_time_says_so(run: Run) -> None:
    run.hosts["spark-1"].answer("one", Outcome(124, "", ""))

    with pytest.raises(StepFailedError, match="time ran out after 5 s"):
        run.carry_out(plan("one"))


def test_ctrl_c_ends_what_runs_and_leads_back(run: Run) -> None:
    """Exit code 130, and no process of the step is left on a node."""
    run.hosts["spark-1"].block("one")
    watcher = threading.Thread(
        target=lambda: run.hosts["spark-1"].started.wait(10) and os.kill(os.getpid(), signal.SIGINT)
    )
    watcher.start()

    with pytest.raises(InterruptedRunError) as raised:
        run.carry_out(plan("one", "two"))
    watcher.join()

    assert raised.value.exit_code is Exit.INTERRUPTED
    assert "cancel" in run.hosts["spark-1"].calls
    assert run.scripts("spark-2") == ["lock", "one", "undo", "unlock"]


def test_ctrl_c_while_the_lock_is_taken_lets_it_go(run: Run) -> None:
    """Else the next run would be refused by a lock that nobody holds."""
    run.hosts["spark-1"].answer(
        "lock", lambda _: os.kill(os.getpid(), signal.SIGINT) or Outcome(0, "", ""), once=True
    )

    with pytest.raises(InterruptedRunError):
        run.carry_out(plan("one"))

    assert run.scripts("spark-2") == ["lock", "unlock"]


def test_a_second_ctrl_c_stops_the_way_back(run: Run) -> None:
    """The operator is told what is left."""
    run.hosts["spark-1"].answer("one", Outcome(1, "", "x"))
    run.hosts["spark-1"].block("undo")
    watcher = threading.Thread(
        target=lambda: run.hosts["spark-1"].started.wait(10) and os.kill(os.getpid(), signal.SIGINT)
    )
    watcher.start()

    with pytest.raises(ManyError, match="the way back was not finished"):
        run.carry_out(plan("one", undo=("undo", "undo-2")))
    watcher.join()

    assert "undo-2" not in run.scripts("spark-2")


def test_the_signal_handlers_are_put_back(run: Run) -> None:
    before = signal.getsignal(signal.SIGINT)
    run.carry_out(plan("one"))

    assert signal.getsignal(signal.SIGINT) is before


def test_a_link_that_comes_back_costs_nothing(run: Run) -> None:
    """Every script may run twice."""
    run.hosts["spark-1"].answer("one", UnreachableError("gone"), once=True)
    run.carry_out(plan("one"))

    assert run.scripts("spark-1") == ["lock", "one", "one", "unlock"]
    assert "reconnect" in run.hosts["spark-1"].calls


def test_a_node_that_is_lost_for_good_ends_the_run_and_the_other_is_put_back(run: Run) -> None:
    run.session.reconnect_every_s = 0
    lost = run.hosts["spark-1"]
    lost.answer("one", lambda _: lost.lose(for_good=True) or (_ for _ in ()).throw(UnreachableError("gone")))

    with pytest.raises(ManyError) as raised:
        run.carry_out(plan("one"))

    assert raised.value.exit_code is Exit.UNREACHABLE
    assert run.scripts("spark-2") == ["lock", "one", "undo", "unlock"]


def test_a_pair_that_was_started_is_left_to_its_supervisors_when_a_node_is_lost(run: Run) -> None:
    """A laptop on a train must not take a loading pair down."""
    run.session.reconnect_every_s = 0
    run.hosts["spark-2"].answer(
        "start", lambda _: run.hosts["spark-2"].lose(for_good=True) or Outcome(0, "", "")
    )
    watched = Plan(
        "a plan",
        (step("start"), step("ready", ("spark-1",), Watch("ready", 10_000))),
        undo=(step("undo"),),
        unlock=(step("unlock"),),
    )

    with pytest.raises(PairLeftAloneError, match="lost spark-2 after the start") as raised:
        run.carry_out(watched)

    assert raised.value.exit_code is Exit.UNREACHABLE
    assert "undo" not in run.scripts("spark-1")


def test_a_node_lost_while_the_proof_runs_is_left_to_its_supervisor(run: Run) -> None:
    """The pair may well serve: only the proof is missing."""
    run.session.reconnect_every_s = 0
    run.hosts["spark-1"].answer(
        "start", lambda _: run.hosts["spark-1"].lose(for_good=True) or Outcome(0, "", "")
    )
    verify = step("verify", ("spark-1",), Complete(5))

    with pytest.raises(PairLeftAloneError, match="lost spark-1 after the start"):
        run.carry_out(Plan("a plan", (step("start"), verify), undo=(step("undo"),)))

    assert "undo" not in run.scripts("spark-2")


def test_secrets_are_written_for_their_owner_alone_and_can_be_put_back(run: Run) -> None:
    folder = NodePath("~/run")
    run.session.secrets = {"KEY": "new"}
    run.session.secrets_found = {"spark-1": b"KEY=old\n", "spark-2": b"KEY=old\n"}
    new, old = UploadSecrets(folder, ("KEY",)), UploadSecrets(folder, ("KEY",), restore=True)
    run.hosts["spark-1"].answer("fails", Outcome(1, "", "x"))

    with pytest.raises(StepFailedError):
        run.carry_out(Plan("p", (step("s", work=new), step("fails")), undo=(step("back", work=old),)))

    assert run.hosts["spark-2"].files["~/run/secrets.env"] == b"KEY=old\n"
    assert run.hosts["spark-2"].modes["~/run/secrets.env"] == 0o600
    assert not any("old" in event.text or "new" in event.text for event in run.events)


def test_after_the_way_back_the_error_says_what_runs_now(run: Run) -> None:
    """Also when both nodes failed: the last thing that is read must not leave it open whether anything serves."""
    for host in run.hosts.values():
        host.answer("one", Outcome(1, "", "disk full"))
    back = Plan("p", (step("one"),), undo=(step("undo"),), undone="release 0123456789ab serves again")

    with pytest.raises(ManyError) as raised:
        run.carry_out(back)

    assert "nodes  release 0123456789ab serves again" in str(raised.value.errors[-1])


def test_ctrl_c_while_the_locks_are_let_go_leaves_none_behind(run: Run) -> None:
    """All is done by then; a lock that stays would send the next operator looking for its holder."""

    def interrupting(_: str) -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        return Outcome(0, "", "")

    run.hosts["spark-1"].answer("unlock", interrupting, once=True)
    run.carry_out(plan("one"))

    assert [script for host in run.hosts.values() for script in host.scripts].count("unlock") >= len(BOTH)
    assert run.scripts("spark-2")[-1] == "unlock"
    assert not [event.text for event in run.events if event.kind == "warning"]


def test_who_insists_while_a_lock_is_let_go_is_told_that_it_stays(run: Run) -> None:
    """One turn for a slip of the finger; the other node's lock is let go all the same."""

    def interrupting(_: str) -> Outcome:
        os.kill(os.getpid(), signal.SIGINT)
        return Outcome(0, "", "")

    run.hosts["spark-1"].answer("unlock", interrupting)
    run.carry_out(plan("one"))

    warnings = [event.text for event in run.events if event.kind == "warning"]
    assert warnings == ["spark-1 keeps its lock: interrupted"]
    assert run.scripts("spark-2")[-1] == "unlock"


def test_ctrl_c_after_the_last_step_takes_no_answer_away(run: Run, tmp_path: Path) -> None:
    """Whether the API is reachable takes a moment: `interrupted before anything was changed` would be a lie."""

    class Asked(FakeHost):
        @property
        def address(self) -> str:
            os.kill(os.getpid(), signal.SIGINT)
            return "127.0.0.1"

    everywhere = replace(INVENTORY, api=Api("0.0.0.0", 1))
    session = replace(run.session, inventory=everywhere, hosts={"spark-1": Asked(INVENTORY.head)})
    release = Release("home", ReleaseFile("manifest.json", b"{}"), {})
    prepared = Prepared(release, Situation(Standing.SERVING, "serving"), Plan("nothing to do", ()), (), {})

    answer = bring_up(prepared, session, Journal(tmp_path, lambda _: None))

    assert answer.startswith("already serving: org/tiny at http://127.0.0.1:1/v1")
