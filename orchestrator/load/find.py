"""Where inventories and recipes lie, and which one is meant."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator import assets
from orchestrator.errors import FileError, UsageError
from orchestrator.load.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "SPARK_DEPLOY_INVENTORY"
PLACES = ("spark-deploy.yaml", "inventories/default.yaml")
SUFFIXES = (".yaml", ".yml")


def find_inventory(explicit: str | None, environ: Mapping[str, str], cwd: Path) -> Path:
    """
    Give *explicit*, else $SPARK_DEPLOY_INVENTORY, else ./spark-deploy.yaml, else ./inventories/default.yaml.

    Raises:
        UsageError: none is named and none lies there.
        FileError: the named one is no file.
    """
    named = explicit or environ.get(VARIABLE)
    if named:
        path = cwd / Path(named).expanduser()
        if not _is_file(path):
            raise _no_inventory(path, at=None if explicit else f"${VARIABLE}")
        return path
    for place in PLACES:
        if _is_file(cwd / place):
            return cwd / place
    raise UsageError(
        "no inventory",
        found=f"neither --inventory, ${VARIABLE}, ./{PLACES[0]} nor ./{PLACES[1]}",
        wanted="one of them",
        hint=_example_hint(f"./{PLACES[0]}"),
    )


def _no_inventory(path: Path, at: str | None) -> FileError:
    if path.is_dir():
        return FileError(f"{path} is a folder", at=at, wanted="an inventory file", hint=_files_hint(path))
    hint = _nearest_file_hint(path) or _example_hint(str(path))
    return FileError(f"there is no inventory {path}", at=at, wanted="a file", hint=hint)


def _files_hint(folder: Path) -> str:
    """Name the files in it that may be meant."""
    inside = ", ".join(map(str, _yaml_files(folder)))
    return f"name one of its files: {inside}" if inside else _example_hint(str(folder / PLACES[0]))


def _yaml_files(folder: Path) -> list[Path]:
    """Give them sorted; none where there is no such folder, or it may not be read."""
    return sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES)


def _example_hint(place: str) -> str:
    return f"copy {assets.shipped_inventories() / 'example.yaml'} to {place} and edit it"


def _is_file(path: Path) -> bool:
    """
    Raises:
        FileError: a folder on the way to it may not be looked into.
    """
    try:
        return stat.S_ISREG(path.stat().st_mode)  # is_file() takes every error for a no, from Python 3.14 on
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise FileError(
            f"{path} cannot be read",
            found=error.strerror,
            hint=f"`namei -l {path}` shows which folder is closed",
        ) from None


def find_recipe(name_or_path: str, inventory_path: Path, relative_to: Path | None = None) -> Path:
    """
    Give the recipe of that name beside the inventory (recipes/), else the shipped one; or the path itself.

    A path is what has a / or ends in .yaml; it is relative to *relative_to*, else to the inventory's folder.

    Raises:
        FileError: there is none.
    """
    if "/" in name_or_path or name_or_path.endswith(SUFFIXES):
        folder = relative_to if relative_to is not None else inventory_path.parent
        path = folder / Path(name_or_path).expanduser()
        if _is_file(path):
            return path
        raise FileError(f"there is no recipe {path}", wanted="a file", hint=_nearest_file_hint(path))
    folders = (inventory_path.parent / "recipes", assets.shipped_inventories() / "recipes")
    for folder in folders:
        for suffix in SUFFIXES:
            path = folder / f"{name_or_path}{suffix}"
            if _is_file(path):
                return path
    raise _no_recipe_named(name_or_path, tuple(dict.fromkeys(folders)))


def _no_recipe_named(name: str, folders: tuple[Path, ...]) -> FileError:
    known = sorted({path.stem for folder in folders for path in _yaml_files(folder)})
    match = nearest(name, known)
    return FileError(
        f"there is no recipe named {name}",
        found=", ".join(known) or "none",
        wanted=f"a file {name}.yaml in {' or '.join(map(str, folders))}",
        hint=f"did you mean {match}?" if match else "name one of those, or the path of a file",
    )


def _nearest_file_hint(path: Path) -> str | None:
    match = nearest(path.name, [other.name for other in _yaml_files(path.parent)])
    return f"did you mean {path.parent / match}?" if match else None
