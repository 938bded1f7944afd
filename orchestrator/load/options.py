"""The options and variables in a recipe: which are the operator's and which the tool's."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.errors import FileError
from orchestrator.load.document import path_text
from orchestrator.load.owned import RAY_OWNED, SHORT_FORMS, SIZES, VLLM_OWNED
from orchestrator.load.problems import found_text
from orchestrator.planning.arguments import ray_words, vllm_words
from orchestrator.planning.environment import looks_secret, owner_reason
from orchestrator.shell import envfile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orchestrator.load.document import Document, Key

ENV_LIMIT_BYTES = 32_768  # Docker reads env files with a 64 KiB line buffer (docker/cli, pkg/kvfile)

_OPTION = re.compile(r"[A-Za-z][A-Za-z0-9_-]*(?:\.[\w-]+)*\+?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def normal(name: str) -> str:
    """Spell an option as vLLM does: dashes, but not in the part after a dot."""
    head, dot, rest = name.lstrip("-").partition(".")
    return head.replace("_", "-") + dot + rest


def vllm_options(document: Document) -> tuple[dict[str, Any], list[FileError]]:
    """Give the recipe's `vllm` in normal spelling, and what is wrong with it."""
    return _options(document, "vllm", VLLM_OWNED, SHORT_FORMS, vllm_words)


def ray_options(document: Document) -> tuple[dict[str, Any], list[FileError]]:
    """Give the recipe's `ray` in normal spelling, and what is wrong with it."""
    return _options(document, "ray", RAY_OWNED, {}, ray_words)


class _Problem(NamedTuple):
    """Follows the key in the message: "vllm.host" "is the tool's own"."""

    verdict: str
    wanted: str | None = None
    hint: str | None = None

    def error(self, document: Document, key: Key) -> FileError:
        return FileError(
            f"{path_text(key)} {self.verdict}", at=document.at(key), wanted=self.wanted, hint=self.hint
        )


def _options(
    document: Document,
    section: str,
    owned: Mapping[str, str],
    short: Mapping[str, str],
    words: Callable[[str, Any], tuple[str, ...]],
) -> tuple[dict[str, Any], list[FileError]]:
    options: dict[str, Any] = {}
    errors: list[FileError] = []
    for written, parsed in document.data.get(section, {}).items():
        name, value = normal(written), _as_written(document, (section, written), parsed)
        problem = (
            _owned(name, short.get(name, name), owned)
            or _misspelled(written, name, short)
            or _repeated(name, options)
            or _wrong_size(name, parsed)
            or _without_form(name, value, words)
        )
        if problem:
            errors.append(problem.error(document, (section, written)))
        options[name] = value
    return options, errors


def _owned(name: str, long: str, owned: Mapping[str, str]) -> _Problem | None:
    option = long.partition(".")[0].removesuffix("+").removeprefix("no-")
    # argparse and click also take the beginning of a long option for the option.
    full = next((known for known in owned if option and known.startswith(option)), None)
    if full is None:
        return None
    which = "" if full == name else f" (as {full})"
    return _Problem(f"is the tool's own{which}", hint=f"leave it out: {owned[full]}")


def _misspelled(written: str, name: str, short: Mapping[str, str]) -> _Problem | None:
    size = next((size for size in SIZES if size.startswith(name)), name)
    long = short.get(name, size)
    if long != name:
        return _Problem(f"is short for {long}", wanted=long)
    if written.startswith("-"):
        return _Problem("begins with a dash", wanted=name)
    if not _OPTION.fullmatch(written):
        return _Problem(
            "is not the name of an option", wanted="letters, digits and dashes, such as max-model-len"
        )
    return None


def _repeated(name: str, options: Mapping[str, Any]) -> _Problem | None:
    if name in options:
        return _Problem("stands twice", f"{name} once", "an underscore is a dash to vLLM")
    return None


def _wrong_size(name: str, value: Any) -> _Problem | None:
    if name in SIZES and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        return _Problem(f"is {found_text(value)}", wanted="a whole number of 1 or more")
    return None


def _without_form(name: str, value: Any, words: Callable[[str, Any], tuple[str, ...]]) -> _Problem | None:
    try:
        words(name, value)
    except ValueError as error:
        found, _, advice = str(error).partition("; ")
        return _Problem(f"is {found}", hint=advice)
    return None


def _as_written(document: Document, key: Key, value: Any) -> Any:
    """Give a number in the file's spelling where Python has another: 0.80 stays 0.80, 1e10 a revision."""
    text = document.texts.get(key, "")
    is_number = isinstance(value, (int, float)) and any(character.isdigit() for character in text)
    return text if is_number and text != str(value) else value


def env_variables(document: Document) -> tuple[dict[str, str], list[FileError]]:
    """Give the recipe's `env` as text (true is 1, false 0), and what is wrong with it."""
    env: dict[str, str] = {}
    errors: list[FileError] = []
    for name, value in document.data.get("env", {}).items():
        problem = _variable_problem(name, value)
        if problem:
            errors.append(problem.error(document, ("env", name)))
        else:
            env[name] = (
                str(int(value))
                if isinstance(value, bool)
                else str(_as_written(document, ("env", name), value))
            )
    return env, errors


def _variable_problem(name: str, value: Any) -> _Problem | None:
    if not _VARIABLE.fullmatch(name):
        return _Problem("is not the name of a variable", wanted="letters, digits and _, no digit in front")
    reason = owner_reason(name)
    if reason:
        return _Problem("is the tool's own", hint=f"leave it out: {reason}")
    if looks_secret(name):
        return _Problem(
            "would show a secret in a file and in `docker inspect`", hint=f"put {name} into `secrets`"
        )
    if not isinstance(value, (str, int, float)):
        return _Problem(f"is {found_text(value)}", wanted="text, a number, true or false")
    try:
        size_bytes = len(envfile(value).encode())
    except ValueError:
        return _Problem(f"is {found_text(value)}", wanted="one line without NUL")
    return (
        _Problem(f"has {size_bytes} bytes", wanted=f"at most {ENV_LIMIT_BYTES}")
        if size_bytes > ENV_LIMIT_BYTES
        else None
    )


def secret_problems(document: Document) -> Iterator[FileError]:
    """Give what is wrong with the recipe's `secrets`, never a value."""
    seen: set[str] = set()
    for index, name in enumerate(document.data.get("secrets", [])):
        reason = owner_reason(name)
        problem = None
        if reason:
            problem = _Problem(f"is {name}, the tool's own", hint=f"leave it out: {reason}")
        elif name in seen:
            problem = _Problem(f"is {name}, which stands twice", wanted="each name once")
        elif name in document.data.get("env", {}):
            problem = _Problem(f"is {name}, which `env` sets, too", wanted="one of the two")
        if problem:
            yield problem.error(document, ("secrets", index))
        seen.add(name)


def served_name_problems(document: Document, options: Mapping[str, Any]) -> Iterator[FileError]:
    """Give what is wrong with the names that clients ask for; `up` itself asks for the first."""
    given = options.get("served-model-name", [])
    for name in given if isinstance(given, list) else [given]:
        if not isinstance(name, str) or not name.strip():
            yield FileError(
                f"vllm.served-model-name has {json.dumps(name)} in it",
                at=document.at(("vllm", "served-model-name")),
                wanted="text; a number in quotes",
            )
