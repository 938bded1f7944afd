"""The fake node of the tests promises what the real one promises."""

from __future__ import annotations

import inspect
import threading

import pytest

from orchestrator.errors import UnreachableError
from orchestrator.remote.connection import FabricHost
from orchestrator.remote.docker import SshDocker
from orchestrator.remote.host import Docker, Host, Outcome
from orchestrator.shell import NodePath
from tests.unit.examples import node
from tests.unit.fake_host import FakeHost


def methods(protocol: type) -> list[str]:
    return [
        name for name, what in vars(protocol).items() if inspect.isfunction(what) and not name.startswith("_")
    ]


def parameters(method: object) -> list[tuple[object, ...]]:
    found = list(inspect.signature(method).parameters.values())
    return [(parameter.name, parameter.kind, parameter.default, parameter.annotation) for parameter in found]


@pytest.mark.parametrize(
    ("protocol", "implementation"),
    [(Host, FakeHost), (Host, FabricHost), (Docker, FakeHost), (Docker, SshDocker)],
)
def test_every_host_can_be_called_in_the_same_way(protocol: type, implementation: type) -> None:
    """A test with a fake that takes other arguments proves nothing."""
    for name in methods(protocol):
        assert parameters(getattr(implementation, name)) == parameters(getattr(protocol, name)), name


@pytest.mark.parametrize("implementation", [FakeHost, FabricHost])
def test_every_host_has_the_attributes_of_a_host(implementation: type) -> None:
    """A script, not a type checker, finds out that the fake lacks one."""
    wanted = [name for name, what in vars(Host).items() if isinstance(what, property)]
    there = {*dir(implementation), *getattr(implementation, "__dataclass_fields__", ())}

    assert [name for name in wanted if name not in there] == []


def test_the_latest_rule_answers() -> None:
    host = FakeHost(node(0))
    host.answer("docker", Outcome(1, "", "old"))
    host.answer("docker run", Outcome(0, "", "new"))

    assert host.run("docker run x", timeout_s=1).stderr == "new"


def test_a_blocked_script_ends_with_cancel() -> None:
    host = FakeHost(node(0))
    host.block("sleep")
    codes: list[int] = []
    runner = threading.Thread(target=lambda: codes.append(host.run("sleep 9", timeout_s=10).exit_code))
    runner.start()
    host.started.wait(10)
    host.cancel()
    runner.join(10)

    assert codes == [143]


def test_a_lost_host_is_unreachable_until_it_is_back() -> None:
    host = FakeHost(node(0))
    host.lose()
    with pytest.raises(UnreachableError):
        host.read(NodePath("~/x"))
    host.reconnect()

    assert host.read(NodePath("~/x")) is None
