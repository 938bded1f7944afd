"""A server that tells the truth, one for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.truth.client import Truth


@pytest.fixture
def truth() -> Iterator[Truth]:
    with Truth() as server:
        yield server
