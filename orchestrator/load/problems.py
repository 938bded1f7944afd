"""What pydantic found, told as our errors: found, wanted, the file and line, the nearest known key."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from orchestrator.errors import FileError, SparkDeployError, one_or_many
from orchestrator.load.document import Document, Key, path_text
from orchestrator.load.schema import InventorySchema, RecipeSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import ErrorDetails

SCHEMA = TypeVar("SCHEMA", bound=BaseModel)

_NOT_TEXT = re.compile(r"[-+]?\d+(\.\d+)?|true|false")  # as text it needs its quotes in a message
_PLAIN = re.compile(r"[\w.:/@~+-]+")
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
}
_CONTEXT_WANTED = {
    "greater_than": "more than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "less_than_equal": "at most {le:g}",
    "finite_number": "a finite number",
    "wanted": "{wanted}",
}
_MISSING = {
    "name": "the name of the deployment, e.g. home",
    "head": "the head node: ssh and fabric",
    "workers": "a list of at least one node, each with ssh and fabric",
    "ssh": "where to log in: HOST, user@HOST:port, or a Host of ~/.ssh/config",
    "fabric": "interface, ip and hcas of the port that joins the nodes",
    "interface": "the netdev that holds the fabric address, e.g. enp1s0f1np1",
    "ip": "the node's own address on the fabric, e.g. 192.168.200.1",
    "api": "where the API listens: bind and port",
    "bind": "127.0.0.1, or an address of the head (no default: vLLM's API key does not guard every path)",
    "model": "a Hub id, or an absolute path present on every node",
    "image": "the image to run: name:tag, name@sha256:…, or an image id",
}


def validated(schema: type[SCHEMA], document: Document) -> SCHEMA:
    """
    Give *document* as *schema*.

    Raises:
        FileError, ManyError: every mistake of the file, in the order of its lines.
    """
    try:
        return schema.model_validate(document.data)
    except ValidationError as error:
        problems = [_problem(schema, document, detail) for detail in error.errors(include_url=False)]
        raise one_or_many(in_file_order(problems)) from None


def in_file_order(problems: Iterable[SparkDeployError]) -> list[SparkDeployError]:
    """Sort by the line in *at*."""
    return sorted(problems, key=lambda problem: int((problem.at or ":0").rpartition(":")[2]))


def found_text(value: Any) -> str:
    """Spell a value of a YAML file for a message: short, on one line, text in quotes where it needs them."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping" if value else "an empty mapping"
    if isinstance(value, list):
        return "a list" if value else "an empty list"
    text = str(value)
    text = text if len(text) <= 80 else f"{text[:77]}…"
    if not isinstance(value, str) or (_PLAIN.fullmatch(text) and not _NOT_TEXT.fullmatch(text)):
        return text
    return f'"{text}"' if text.isprintable() else '"' + text.encode("unicode_escape").decode("ascii") + '"'


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Give the one of *known* that *name* was most likely meant to be."""
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)), None)


def _known_keys_hint(name: str, known: list[str]) -> str:
    match = nearest(name, known)
    return f"did you mean {match}?" if match else f"known keys: {', '.join(known)}"


def _elsewhere(schema: type[BaseModel], key: Key) -> str:
    """Name the other file where *key* is one of its own: transport, api and the like in a recipe."""
    others: dict[type[BaseModel], tuple[str, type[BaseModel]]] = {
        RecipeSchema: ("inventory", InventorySchema),
        InventorySchema: ("recipe", RecipeSchema),
    }
    if len(key) != 1 or schema not in others:
        return ""
    kind, other = others[schema]
    return f"it belongs in the {kind}" if key[0] in _keys(other, ()) else ""


def _problem(schema: type[BaseModel], document: Document, detail: ErrorDetails) -> FileError:
    key: Key = detail["loc"]
    at = document.at(key)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return FileError(
            f"{path_text(key)} is not a known key",
            at=at,
            hint=_elsewhere(schema, key) or _known_keys_hint(str(key[-1]), _keys(schema, key[:-1])),
        )
    if kind == "missing":
        return FileError(f"{path_text(key)} is missing", at=at, wanted=_MISSING.get(str(key[-1])))
    value = detail["input"]
    # Under `secrets` it may be a value instead of a name.
    found = "something else" if key[0] == "secrets" and isinstance(value, str) else found_text(value)
    hint = detail.get("ctx", {}).get("hint") or None
    return FileError(f"{path_text(key)} is {found}", at=at, wanted=_wanted(detail), hint=hint)


def _wanted(detail: ErrorDetails) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    if kind in _CONTEXT_WANTED:
        return _CONTEXT_WANTED[kind].format_map(context)
    return _WANTED.get(kind, detail["msg"])


def _keys(schema: type[BaseModel], key: Key) -> list[str]:
    """Give the keys that the mapping at *key* may have."""
    fields = schema.model_fields
    for part in key:
        if isinstance(part, str):
            fields = _inner(fields[part].annotation).model_fields
    return list(fields)


def _inner(annotation: Any) -> type[BaseModel]:
    """Give the schema in `X`, `X | None` or `list[X]`."""
    while not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        annotation = annotation.__args__[0]
    return annotation
