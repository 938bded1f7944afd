"""Whether the API can be reached is asked before a load of minutes, not after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orchestrator.errors import Exit, RefusedError, StepFailedError
from orchestrator.run.endpoint import healthy, refuse_if_out_of_reach
from tests.unit.examples import INVENTORY
from tests.unit.fake_host import FakeHost

if TYPE_CHECKING:
    import socket


class NoForwarding(FakeHost):
    """A node whose sshd says `AllowTcpForwarding no`."""

    def open_tcp(self, address: str, port: int, timeout_s: float) -> socket.socket:
        raise StepFailedError(
            "the node's SSH server refuses", at=self.node.name, hint="AllowTcpForwarding yes"
        )


def test_a_head_that_forwards_nothing_is_refused_before_anything_is_changed() -> None:
    """The proof by a completion would fail, and the load of the model would be undone for it."""
    with pytest.raises(RefusedError) as raised:
        refuse_if_out_of_reach(INVENTORY, NoForwarding(INVENTORY.head))

    assert (raised.value.exit_code, raised.value.hint) == (Exit.CHECK, "AllowTcpForwarding yes")


def test_nobody_listening_yet_is_fine() -> None:
    refuse_if_out_of_reach(INVENTORY, FakeHost(INVENTORY.head))


def test_a_head_that_forwards_nothing_is_not_healthy() -> None:
    """`status` shows the node, not an error."""
    assert not healthy(INVENTORY, NoForwarding(INVENTORY.head))
