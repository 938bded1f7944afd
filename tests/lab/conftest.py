"""Fixtures of the lab: one lab a session, clean nodes and a fresh admin's home for every test."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from . import engine, images
from .admin import AdminHome
from .claim import free_topology
from .inventory import write_inventory
from .lab import Lab
from .need import real_engine_installed
from .requirements import lab_available

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.lab)


@contextlib.contextmanager
def running_lab(size: int = 2) -> Iterator[Lab]:
    """A lab of its own, beside any other; down at the end, whatever happens."""
    if reason := lab_available():
        pytest.fail(reason, pytrace=False)
    with free_topology(size) as topology:
        lab = Lab(topology)
        try:
            lab.up()
            yield lab
        finally:
            lab.down()


@pytest.fixture(scope="session")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Two nodes and a jump host, for the whole session."""
    if not lab_available() and any(item.get_closest_marker("real") for item in request.session.items):
        engine.install()  # before the nodes boot, since they mount it; the fixture real_engine says what is wrong
    with running_lab() as lab:
        yield lab


@pytest.fixture(scope="session")
def lab_of_three() -> Iterator[Lab]:
    """Three nodes on a switch."""
    with running_lab(size=3) as lab:
        yield lab


@pytest.fixture(scope="session")
def real_engine(lab: Lab) -> Lab:
    """The lab with the image `lab/vllm:slim`: real Ray and vLLM, and a model at engine.MODEL."""
    real_engine_installed()
    lab.load_images([images.REAL])
    return lab


@pytest.fixture(autouse=True)
def clean_nodes(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test: cables plugged, power on, no container, no state folder, models complete."""
    yield
    for name in ("lab", "lab_of_three"):
        if name in request.fixturenames:
            request.getfixturevalue(name).clean()


@pytest.fixture
def admin_home(lab: Lab, tmp_path: Path) -> AdminHome:
    """A laptop that knows the nodes' host keys and has the right SSH key."""
    return AdminHome(lab, tmp_path / "home").create()


@pytest.fixture
def spark_deploy(admin_home: AdminHome) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`spark_deploy("up", "--yes", env={…}, timeout_s=60)` on the admin's laptop, whatever the exit code."""
    return admin_home.spark_deploy


@pytest.fixture
def inventory(admin_home: AdminHome) -> Callable[..., Path]:
    """
    Write ~/spark-deploy.yaml and ~/recipes/stub.yaml for the lab; see write_inventory() for the overrides.

    The tool finds them by itself, since it is run from the home.
    """

    def write(**overrides: Any) -> Path:
        return write_inventory(admin_home, **overrides)

    return write
