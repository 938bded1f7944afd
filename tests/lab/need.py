"""What tests that need the real engine say where it cannot be had."""

from __future__ import annotations

import pytest

from . import engine


def real_engine_installed() -> None:
    """
    Install it; skip, with the reason, where no CPU build of torch is to be had, and fail on anything else.

    A machine without that build still tests all the rest, on the stub engine.
    """
    reason = engine.install()
    if reason and engine.CANNOT_BE_BUILT in reason:
        pytest.skip(reason)
    if reason:
        pytest.fail(reason, pytrace=False)
