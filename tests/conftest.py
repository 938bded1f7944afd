"""Golden files: what is rendered is compared byte by byte, and `--update-golden` writes it anew for review."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from orchestrator.assets import templates

if TYPE_CHECKING:
    from collections.abc import Callable

# What is drawn depends on the terminal: on this one, not on that of whoever runs the tests.
os.environ["TERM"] = "xterm-256color"
for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "SPARK_DEPLOY_INVENTORY"):
    os.environ.pop(name, None)

# A machine that stalls for 200 ms, hypothesis' limit, is no failure of what is tested.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

GOLDEN = Path(__file__).parent / "golden"

sys.path.insert(0, str(templates()))  # `supervisor` is no part of our package: it runs on the nodes


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write tests/golden/ anew instead of comparing"
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare *text* with tests/golden/*path*."""

    def compare(path: str, text: str) -> None:
        file = GOLDEN / path
        if request.config.getoption("--update-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="")
        assert file.is_file(), f"{file} is not there: --update-golden writes it"
        assert text == file.read_bytes().decode()

    return compare
