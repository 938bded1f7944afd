"""result.json and the levels of an unfinished sweep: from bytes, and to them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from orchestrator.errors import FileError
from orchestrator.load.document import path_text
from orchestrator.model.bench import SCHEMA, LevelResult, Request, Result

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

READ = TypeVar("READ")
_FAMILY, _VERSION = SCHEMA.rsplit("/v", 1)


@dataclass(frozen=True)
class SavedLevel:
    """A whole level, its requests by repeat, and the hash of what it was measured with."""

    config: str
    result: LevelResult
    requests: tuple[tuple[Request, ...], ...]


def load_result(path: str | Path) -> Result:
    """
    Read a result.json, or the one in a folder.

    Raises:
        FileError: there is none, or it is not one that this version understands.
    """
    place = Path(path)
    folder = os.path.isdir(place)  # noqa: PTH112  # is_dir() raises where a name is too long
    file = place / "result.json" if folder else place
    try:
        content = file.read_bytes()
    except FileNotFoundError:
        raise FileError(
            f"there is no result {file}", hint="`spark-deploy bench history` lists them"
        ) from None
    except OSError as error:
        raise FileError(f"{file} cannot be read: {error.strerror}", at=str(file)) from None
    _refuse_other_schema(file, content)
    return _read(Result, file, content)


def load_level(file: Path, content: bytes) -> SavedLevel:
    """Raises FileError: *content* is no whole level."""
    return _read(SavedLevel, file, content)


def to_json(value: Result | SavedLevel | Request, indent: int | None = None) -> bytes:
    kind: Any = type(value)
    try:
        return _adapter(kind).dump_json(value, indent=indent)
    except PydanticSerializationError:  # half a surrogate pair: a server's word, or one of the command line
        plain = json.dumps(_adapter(kind).dump_python(value, mode="json"), ensure_ascii=False, indent=indent)
        return plain.encode("utf-8", "replace")


def result_json(result: Result) -> bytes:
    return to_json(result, indent=1) + b"\n"


def result_schema() -> dict[str, Any]:
    """Give the JSON schema of result.json: orchestrator/bench/result.schema.json."""
    made = _adapter(Result).json_schema(mode="serialization")
    made["properties"]["schema"]["const"] = SCHEMA
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **made}


@lru_cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _refuse_other_schema(file: Path, content: bytes) -> None:
    try:
        about: Mapping[str, Any] | Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{file} is not JSON", at=str(file), found=str(error)) from None
    found = about.get("schema") if isinstance(about, dict) else None
    if found == SCHEMA:
        return
    family, _, version = str(found).rpartition("/v")
    newer = family == _FAMILY and version.isdecimal() and int(version) > int(_VERSION)
    raise FileError(
        f"{file} was written by a newer spark-deploy"
        if newer
        else f"{file} is no result of `spark-deploy bench`",
        at=str(file),
        found=f"schema {found}" if found else "no schema",
        wanted=f"schema {SCHEMA}",
        hint="a newer spark-deploy reads it" if newer else None,
    )


def _read(kind: Callable[..., READ], file: Path, content: bytes) -> READ:
    try:
        read: READ = _adapter(kind).validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = path_text(first["loc"]) if first["loc"] else "the file"
        raise FileError(
            f"{where} is wrong: {first['msg']}", at=str(file), hint="it was cut, or changed by hand"
        ) from None
    return read
