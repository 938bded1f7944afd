"""What the watch over a starting pair makes of one look after the other."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from orchestrator.errors import StepFailedError
from orchestrator.model.plan import Watch
from orchestrator.planning import layout
from orchestrator.remote.host import Outcome
from orchestrator.run.session import Session
from orchestrator.run.watch import watch
from tests.unit.examples import INVENTORY, RECIPE, state
from tests.unit.fake_host import Clock, FakeHost

GONE = Outcome(1, "", "Error: No such object: spark-deploy-home")
READY = Watch("ready", 3600)


@pytest.fixture
def session() -> Session:
    """A pair that loads release 0123456789ab; every look at the clock takes half a minute."""
    hosts = {node.name: FakeHost(node) for node in INVENTORY.nodes}
    for host in hosts.values():
        tell(host, "0123456789ab")
        host.answer("docker inspect", Outcome(0, "running 0\n", ""))
    return Session(INVENTORY, RECIPE, hosts, lambda _: None, clock=Clock())


def tell(host: FakeHost, release: str) -> None:
    told = {"schema": 1, **asdict(state("starting-engine", release, host.node.name))}
    host.files[str(layout.run_folder(INVENTORY, host.node) / "state.json")] = json.dumps(told).encode()


def test_a_container_that_another_run_replaces_is_not_called_dead(session: Session) -> None:
    """Between its `docker rm` and its `docker run` there is none; soon another release says what happened."""
    host = session.hosts["spark-2"]

    def replaced(_: str) -> Outcome:
        tell(host, "ba9876543210")
        return GONE

    host.answer("docker inspect", replaced, once=True)

    with pytest.raises(StepFailedError, match="another run has put another release there"):
        watch(READY, session)


def test_a_container_that_stays_away_is_the_cause(session: Session) -> None:
    session.hosts["spark-2"].answer("docker inspect", GONE)

    with pytest.raises(StepFailedError, match="the container is gone") as failed:
        watch(READY, session)

    assert failed.value.at == "spark-2"
