"""Secret values out of everything that is written. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.errors import SparkDeployError
    from orchestrator.model.event import Event, Sink

MASK = "***"
# What the journal itself is read by stays, even if a secret happens to be the word "code".
_OURS = {"exit_code", "elapsed_s", "limit_s", "schema", "at"}


def mask(secrets: Iterable[str]) -> Callable[[str], str]:
    """Give a function that puts `***` in the place of every secret value, also in quotes, JSON or a URL."""
    pattern = _pattern(secrets)
    return lambda text: pattern.sub(MASK, text) if pattern else text


def mask_bytes(secrets: Iterable[str]) -> Callable[[bytes], bytes]:
    """Do the same for the bytes of a file, whatever its encoding."""
    pattern = _pattern(secrets)
    encoded = re.compile(pattern.pattern.encode("utf-8", "surrogateescape")) if pattern else None
    return lambda content: encoded.sub(MASK.encode(), content) if encoded else content


def masked(event: Event, hide: Callable[[str], str]) -> Event:
    """Give *event* with every string in it, at any depth of its data, passed through *hide*."""
    text, step, node = map(hide, (event.text, event.step, event.node))
    return replace(event, text=text, step=step, node=node, data=each_string(event.data, hide))


def masking(sink: Sink, hide: Callable[[str], str]) -> Sink:
    """Give a sink that passes only masked events on."""
    return lambda event: sink(masked(event, hide))


def hide_in_error(error: SparkDeployError, hide: Callable[[str], str]) -> None:
    """Pass every text of *error* through *hide*: it may quote a node's log."""
    for name in ("message", "at", "found", "wanted", "hint"):
        text = getattr(error, name)
        setattr(error, name, hide(text) if text else text)
    for inner in getattr(error, "errors", ()):
        hide_in_error(inner, hide)


def _pattern(secrets: Iterable[str]) -> re.Pattern[str] | None:
    forms = {form for secret in secrets if secret for form in _forms(secret)}
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    return re.compile("|".join(map(re.escape, longest_first))) if forms else None


def _forms(secret: str) -> set[str]:
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        shlex.quote(secret),
        quote(secret, safe="", errors="replace"),
    }


def each_string(value: Any, change: Callable[[str], str]) -> Any:
    """Give what JSON makes of *value*, with every string in it, keys too, passed through *change*."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            key if key in _OURS else change(str(key)): each_string(inner, change)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [each_string(inner, change) for inner in value]
    return value
