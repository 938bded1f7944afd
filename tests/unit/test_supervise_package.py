"""How the supervisor is put together: which module may know which."""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter

import pytest

from orchestrator.assets import templates

MODULES = {
    f"supervisor.{path.stem}": ast.parse(path.read_text())
    for path in sorted((templates() / "supervisor").glob("*.py"))
}
PURE = [name for name, tree in MODULES.items() if str(ast.get_docstring(tree)).endswith("Pure.")]
COMPUTING = {
    "__future__", "collections", "contextlib", "dataclasses", "hashlib", "hmac", "json", "math", "re", "typing",
}  # fmt: skip


def imported(name: str) -> set[str]:
    """Modules of the package by their full name, others by the first part."""
    nodes = list(ast.walk(MODULES[name]))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    return {found if found in MODULES else found.partition(".")[0] for found in names}


@pytest.mark.parametrize("name", MODULES)
def test_only_the_standard_library_is_needed(name: str) -> None:
    """
    An image has its own Python, and nothing that we could count on.
    """
    assert imported(name) <= {*sys.stdlib_module_names, *MODULES}


@pytest.mark.parametrize("name", PURE)
def test_what_decides_touches_nothing(name: str) -> None:
    """
    So a test can drive it through a month in a second.
    """
    assert imported(name) <= {*COMPUTING, *PURE}


def test_both_roles_decide_purely() -> None:
    """
    The rule above is about modules that claim it: these have to.
    """
    assert {"supervisor.head", "supervisor.worker", "supervisor.hearing", "supervisor.log"} <= set(PURE)


def test_no_module_needs_one_that_needs_it() -> None:
    """
    They can be read in an order.
    """
    order = TopologicalSorter({name: imported(name) & set(MODULES) for name in MODULES}).static_order()

    assert len(list(order)) == len(MODULES)
