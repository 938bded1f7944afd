"""Values on their way into a shell line, an env file or JSON. Pure."""

from __future__ import annotations

import json
import shlex
from typing import Any


class NodePath(str):
    """A path on a node; a leading `~/` is the home of the user we log in as."""

    __slots__ = ()

    def __truediv__(self, part: str) -> NodePath:
        return NodePath(f"{self.rstrip('/')}/{part}")

    def expanded(self, home: str) -> NodePath:
        """Give the same with *home* in the place of `~`."""
        return NodePath(f"{home}/{self[2:]}") if self.startswith("~/") else self

    @property
    def sftp(self) -> str:
        """The same for SFTP, whose relative paths begin at home."""
        return self[2:] if self.startswith("~/") else str(self)


def sh(value: object) -> str:
    """
    One word of a POSIX shell, whatever is in *value*; only the `~/` of a NodePath stays alive.

    Raises:
        ValueError: *value* holds a NUL, which no argument can carry.
    """
    text = str(value)
    if "\0" in text:
        raise ValueError(f"a NUL cannot be passed to a program: {text!r}")
    if isinstance(value, NodePath) and text.startswith("~/"):
        return "~/" + shlex.quote(text[2:])
    return shlex.quote(text)


def envfile(value: object) -> str:
    """
    The right side of `KEY=…` in a file for `docker run --env-file`.

    Docker takes the rest of the line literally, quotes and all (docker/cli, opts/file.go), so
    only what would end or begin another line is refused.

    Raises:
        ValueError: *value* holds a line break or a NUL.
    """
    text = str(value)
    if any(character in text for character in "\n\r\0"):
        raise ValueError(f"an env file cannot carry a line break or NUL: {text!r}")
    return text


def to_json(value: Any) -> str:
    """JSON, keys sorted, so that equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(", ", ": "))
