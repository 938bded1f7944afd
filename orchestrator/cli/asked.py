"""What the options of a sweep say: read, checked and put together. Nothing is sent before."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from orchestrator.errors import UsageError
from orchestrator.model.bench import SUMMED, Level, Load

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator.client.server import Server

LEVELS = "1,2,4,8,16"
MOST_AT_ONCE = 1024
MOST_REQUESTS = 100_000  # of one repeat: their bodies are made before its clock starts, some 3 kB each
KEY_VARIABLES = ("SPARK_DEPLOY_API_KEY", "VLLM_API_KEY")  # not OPENAI_API_KEY: that is another server's
OBJECTIVES = ("ttft", "tpot", "e2e")
OF_URL = ("model", "api_key_env", "ca_file", "insecure")


def load_of(given: Mapping[str, Any]) -> Load:
    """Raises UsageError."""
    repeats = given["repeats"] or (3 if given["baseline"] else 1)
    return Load(
        endpoint="chat" if given["chat"] else "completions",
        prompt_tokens=given["input_tokens"],
        output_tokens=given["output_tokens"],
        requests=given["requests"],
        duration_s=given["duration"],
        repeats=repeats,
        seed=given["seed"],
        slo=objectives(given["slo"] or ""),
    )


def levels_of(given: Mapping[str, Any]) -> tuple[Level, ...]:
    """Raises UsageError: both kinds of levels, or one that is none."""
    if given["rate"] and given["levels"]:
        raise UsageError(
            "--rate and --levels exclude each other",
            found=f"--rate {given['rate']} --levels {given['levels']}",
            wanted="requests in flight (--levels), or requests that arrive per second (--rate)",
        )
    if given["rate"] is not None:
        return tuple(Level(rate=rate) for rate in rates(given["rate"]))
    text = LEVELS if given["levels"] is None else given["levels"]
    return tuple(Level(number) for number in concurrencies(text))


def refuse_too_many(levels: Iterable[Level], load: Load) -> None:
    """Raises UsageError: a repeat has more requests than fit into the memory."""
    from orchestrator.run.outlook import planned

    for level in levels:
        if (count := planned(level, load) or 0) > MOST_REQUESTS:
            raise UsageError(
                f"{count} requests in one repeat, at {level.name}, are too many",
                wanted=f"at most {MOST_REQUESTS}",
                hint="a lower --rate, a shorter --duration, or --requests",
            )


def concurrencies(text: str) -> tuple[int, ...]:
    """`4,1,2` in ascending order. Raises UsageError."""
    numbers = [_concurrency(word, text) for word in _words(text)]
    return tuple(sorted(_different(numbers, "--levels", text)))


def rates(text: str) -> tuple[float, ...]:
    """The same for arrivals per second."""
    numbers = [_positive(word, f"--rate {text}: {word!r} is no rate") for word in _words(text)]
    return tuple(sorted(_different(numbers, "--rate", text)))


def objectives(text: str) -> dict[str, float]:
    """`ttft=1.0,tpot=0.1`: seconds. Raises UsageError."""
    found: dict[str, float] = {}
    for word in _words(text) if text else ():
        name, sign, value = word.partition("=")
        _known(name, OBJECTIVES, f"--slo {text}")
        seconds = _positive(value, f"--slo {text}: {name} needs a time") if sign else None
        if seconds is None or name in found:
            why = "is given twice" if name in found else "has no value"
            raise UsageError(f"--slo {text}: {name} {why}", wanted="NAME=SECONDS, such as ttft=1.0,tpot=0.1")
        found[name] = seconds
    return found


def metrics(text: str) -> tuple[str, ...]:
    """The figures that a verdict may fail on. Raises UsageError."""
    names = tuple(_words(text)) if text else ()
    for name in names:
        _known(name, SUMMED, f"--fail-on {text}")
    return names


def server_of(given: Mapping[str, Any], environ: Mapping[str, str]) -> Server:
    """Raises UsageError: no URL, no key where one is named, or options that contradict each other."""
    from orchestrator.client.server import parse_url

    if given["ca_file"] and given["insecure"]:
        raise UsageError("--ca-file and --insecure exclude each other")
    key = _key(given["api_key_env"], environ)
    return parse_url(given["url"], key, ca_file=given["ca_file"] or "", insecure=given["insecure"])


def refuse_url_with_inventory(given: Mapping[str, Any]) -> None:
    """Raises UsageError: what is measured is said twice, or an option has nothing that it is about."""
    named = [f"--{name}" for name in ("inventory", "recipe") if given[name]]
    if given["url"] and named:
        raise UsageError(
            f"--url and {named[0]} exclude each other",
            wanted="a server by its URL, or the deployment of an inventory",
        )
    alone = [f"--{name.replace('_', '-')}" for name in OF_URL if given[name]]
    if alone and not given["url"]:
        raise UsageError(
            f"{alone[0]} is about a server that --url names", hint="without it, the deployment's own is taken"
        )


def _key(variable: str | None, environ: Mapping[str, str]) -> str:
    if variable and not environ.get(variable):
        hint = (
            f"export {variable}=…" if re.fullmatch(r"\w+", variable) else "the variable's name, not the key"
        )
        raise UsageError("--api-key-env names no variable with a key in it", hint=hint)
    names = (variable,) if variable else KEY_VARIABLES
    return next(filter(None, map(environ.get, names)), "")


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _concurrency(word: str, text: str) -> int:
    if re.fullmatch(r"[0-9]{1,4}", word) and 1 <= int(word) <= MOST_AT_ONCE:
        return int(word)
    numbers = {int(number) for number in re.findall(r"(?<![-.\w])[0-9]{1,4}(?![.\w])", text)}
    near = sorted(number for number in numbers if 1 <= number <= MOST_AT_ONCE)
    raise UsageError(
        f"--levels {text}: {word!r} is no concurrency",
        wanted=f"whole numbers from 1 to {MOST_AT_ONCE}, with commas between them",
        hint=f"--levels {','.join(map(str, near))}" if near else None,
    )


def _positive(word: str, problem: str) -> float:
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?|\.[0-9]{1,9}", word) and float(word) > 0:
        return float(word)
    raise UsageError(problem, found=word or "nothing", wanted="a number above 0, such as 0.5")


def _different(numbers: list[Any], option: str, text: str) -> list[Any]:
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        once = ",".join(f"{number:g}" for number in dict.fromkeys(numbers))
        raise UsageError(f"{option} {text}: {twice:g} is given twice", hint=f"{option} {once}")
    return numbers


def _known(name: str, known: Iterable[str], option: str) -> None:
    from orchestrator.load.problems import nearest

    if name not in known:
        near = nearest(name, known)
        raise UsageError(
            f"{option}: no {name!r}", wanted=", ".join(known), hint=f"did you mean {near}?" if near else None
        )
