"""Where the other files lie: templates/ (all that a node executes), inventories/ (all that an operator writes)."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent
_INSTALLED = _PACKAGE / "_assets"  # in a wheel: pyproject.toml, force-include


def _folder(name: str) -> Path:
    return _INSTALLED / name if _INSTALLED.is_dir() else _PACKAGE.parent / name


def templates() -> Path:
    return _folder("templates")


def shipped_inventories() -> Path:
    return _folder("inventories")
