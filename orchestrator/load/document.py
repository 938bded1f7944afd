"""A YAML file as plain data, and the line that every value came from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

from orchestrator.errors import FileError, SparkDeployError, one_or_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

Key = tuple[str | int, ...]

SIZE_LIMIT_BYTES = 1_000_000  # of a file that a person writes; the reference recipe has 2 kB
VALUE_LIMIT = 100_000  # a file of 10 lines can mean 10^9 values by anchors alone
_MERGE = "tag:yaml.org,2002:merge"
_AMBIGUOUS = re.compile(r"(?:yes|no|on|off)", re.IGNORECASE)


@dataclass(frozen=True)
class Document:
    """One file. Mappings are dicts, sequences lists; *lines* and *texts* are by key path."""

    path: Path
    data: dict[str, Any]
    lines: Mapping[Key, int]
    texts: Mapping[Key, str]  # scalars as they stand in the file: 0.80, not 0.8

    def at(self, key: Key) -> str:
        """Give `file:line` of *key*, or of the nearest thing around it."""
        while key not in self.lines:
            key = key[:-1]
        return f"{self.path}:{self.lines[key]}"


class _Yaml12(yaml.SafeLoader):
    """YAML 1.2 scalars: 22:22, 2026-01-01, 010 and 1e5x are text, not what YAML 1.1 makes of them."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - PyYAML's own shape


for _tag, _pattern, _first in (
    ("bool", r"(?:true|True|TRUE|false|False|FALSE)", "tTfF"),
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:\.[0-9]+|(?:0|[1-9][0-9]*)(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("merge", r"<<", "<"),
):
    _Yaml12.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"(?:{_pattern})\Z"), list(_first))

_SCALARS: dict[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:bool": lambda text: text.lower() == "true",
    "tag:yaml.org,2002:null": lambda _text: None,
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": lambda text: float(re.sub(r"\.(inf|nan)\Z", r"\1", text, flags=re.IGNORECASE)),
    "tag:yaml.org,2002:str": str,
}


def read_document(path: Path, kind: str) -> Document:
    """
    Give the *kind* ("inventory", "recipe") in *path*.

    Raises:
        FileError: it cannot be read, is not UTF-8, or is not one YAML mapping.
        ManyError: several keys stand twice, or several scalars are ambiguous.
    """
    root = _compose(path, _text(path, kind), kind)
    builder = _Builder(path)
    try:
        data = builder.build(root, ())
    except RecursionError:
        raise FileError(f"{path} is nested too deeply", at=str(path), wanted="a few levels") from None
    if builder.errors:
        raise one_or_many(builder.errors)
    builder.lines[()] = root.start_mark.line + 1
    return Document(path, data, builder.lines, builder.texts)


def a(noun: str) -> str:
    """Give *noun* with its article."""
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _text(path: Path, kind: str) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise FileError(f"there is no {kind} {path}", hint="name an existing file") from None
    except IsADirectoryError:
        raise FileError(f"{path} is a folder", wanted=f"{a(kind)} file") from None
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror}", at=str(path)) from None
    if len(raw) > SIZE_LIMIT_BYTES:
        raise FileError(f"{path} has {len(raw)} bytes", at=str(path), wanted=f"at most {SIZE_LIMIT_BYTES}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise FileError(
            f"byte {raw[error.start]:#04x} is not UTF-8", at=f"{path}:{line}", wanted="a text file in UTF-8"
        ) from None


def _compose(path: Path, text: str, kind: str) -> yaml.MappingNode:
    documents = _documents(path, text)
    if not documents or (isinstance(documents[0], yaml.ScalarNode) and not documents[0].value):
        raise FileError(f"{path} is empty", at=str(path), wanted=f"the keys of {a(kind)}")
    if len(documents) > 1:
        line = documents[1].start_mark.line + 1
        raise FileError(
            "a second YAML document begins here", at=f"{path}:{line}", wanted="one document per file"
        )
    root = documents[0]
    if not isinstance(root, yaml.MappingNode):
        raise FileError(
            f"the file holds {_shape(root)}",
            at=f"{path}:{root.start_mark.line + 1}",
            wanted="a mapping, `key: value` lines",
        )
    return root


def _documents(path: Path, text: str) -> list[yaml.Node]:
    try:
        return list(yaml.compose_all(text, Loader=_Yaml12))
    except yaml.reader.ReaderError as error:
        line = text[: error.position].count("\n") + 1
        raise FileError(
            f"the character U+{ord(text[error.position]):04X} is not allowed in YAML",
            at=f"{path}:{line}",
            wanted="printable text",
        ) from None
    except yaml.MarkedYAMLError as error:
        raise _yaml_error(path, text, error) from None
    except RecursionError:
        raise FileError(f"{path} is nested too deeply", at=str(path), wanted="a few levels") from None


def _yaml_error(path: Path, text: str, error: yaml.MarkedYAMLError) -> FileError:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark else 0
    lines = text.splitlines()
    here = lines[line] if line < len(lines) else ""
    if "\t" in here[: len(here) - len(here.lstrip())] or "'\\t'" in str(error.problem):
        return FileError(
            "a tab stands where YAML wants spaces", at=f"{path}:{line + 1}", hint="indent with spaces"
        )
    parts = [part for part in (error.context, error.problem) if part]
    return FileError(f"not YAML: {', '.join(parts)}", at=f"{path}:{line + 1}")


def _shape(node: yaml.Node) -> str:
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"


class _Builder:
    """Nodes into data; remembers the line and the text of each, and every mistake on the way."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[Key, int] = {}
        self.texts: dict[Key, str] = {}
        self.errors: list[SparkDeployError] = []
        self._open: set[int] = set()  # nodes we are inside of: an alias to one of them never ends
        self._count = 0

    def build(self, node: yaml.Node, key: Key) -> Any:
        self._count += 1
        if self._count > VALUE_LIMIT:
            raise FileError(
                f"more than {VALUE_LIMIT} values", at=str(self.path), hint="fewer aliases of aliases"
            )
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, key)
        if id(node) in self._open:
            self._wrong(
                node,
                f"{path_text(key)} contains itself",
                hint="an alias must not stand inside its own anchor",
            )
            return None
        self._open.add(id(node))
        try:
            return (
                self._mapping(node, key) if isinstance(node, yaml.MappingNode) else self._sequence(node, key)
            )
        finally:
            self._open.discard(id(node))

    def _sequence(self, node: yaml.Node, key: Key) -> list[Any]:
        items = []
        for index, item in enumerate(node.value):
            place = (*key, index)
            self.lines[place] = item.start_mark.line + 1
            items.append(self.build(item, place))
        return items

    def _mapping(self, node: yaml.MappingNode, key: Key) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if name_node.tag == _MERGE:
                self._merge(value_node, key, merged)
        own: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if name_node.tag == _MERGE:
                continue
            name = name_node.value
            place = (*key, name) if isinstance(name, str) else key
            if not isinstance(name_node, yaml.ScalarNode) or name_node.tag not in _SCALARS:
                self._wrong(name_node, f"a key in {path_text(key)} is {_shape(name_node)}", wanted="text")
            elif name in own:
                first = self.lines[place]
                self._wrong(name_node, f"{path_text(place)} stands twice", found=f"the first in line {first}")
            else:
                self.lines[place] = name_node.start_mark.line + 1
                own[name] = self.build(value_node, place)
        return {**{name: value for name, value in merged.items() if name not in own}, **own}

    def _merge(self, node: yaml.Node, key: Key, into: dict[str, Any]) -> None:
        sources = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for source in sources:
            if not isinstance(source, yaml.MappingNode):
                self._wrong(
                    source, f"`<<` in {path_text(key)} is {_shape(source)}", wanted="an alias of a mapping"
                )
                continue
            for name, value in self.build(source, key).items():
                into.setdefault(name, value)

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        plain = node.style is None
        if plain and _AMBIGUOUS.fullmatch(node.value):
            self._wrong(
                node,
                f"{path_text(key)} is {node.value}, which YAML 1.1 and 1.2 read differently",
                wanted=f'true, false, or the text "{node.value}" in quotes',
            )
        convert = _SCALARS.get(node.tag)
        if convert is None:
            self._wrong(node, f"{path_text(key)} has the tag {node.tag}", wanted="plain YAML without tags")
            return None
        self.texts[key] = node.value
        try:
            return convert(node.value)
        except ValueError:
            self._wrong(node, f"{path_text(key)} is not what its tag {node.tag} says")
            return None

    def _wrong(self, node: yaml.Node, message: str, **details: str) -> None:
        self.errors.append(FileError(message, at=f"{self.path}:{node.start_mark.line + 1}", **details))


def path_text(key: Key) -> str:
    """Spell a key path as the docs do: workers[0].fabric.ip."""
    text = (
        "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).lstrip(".")
        or "the file"
    )
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
