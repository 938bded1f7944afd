"""Who is in Ray, compared with who should be. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from supervisor.settings import Settings


@dataclass(frozen=True)
class Problem:
    """Who is missing in Ray, and in words what is wrong there. *hopeless*: waiting will not mend it."""

    missing: tuple[str, ...]
    text: str
    hopeless: bool = False


def members_problem(settings: Settings, members: Iterable[tuple[str, float]]) -> Problem:
    """Compare Ray's living nodes (address, GPUs) with the deployment's."""
    gpus = dict(members)
    wanted = settings.nodes
    absent = {ip: name for ip, name in wanted.items() if ip not in gpus}
    bare = [name for ip, name in wanted.items() if ip in gpus and gpus[ip] < 1]
    unexpected = [ip for ip in gpus if ip not in wanted]
    said = [f"{name} ({ip}) did not join Ray" for ip, name in absent.items()]
    if absent and unexpected:
        ip, name = next(iter(absent.items()))
        said = [f"Ray registered {name} under {unexpected[0]}, wanted {ip}"]
    elif unexpected:
        said = [f"{unexpected[0]} joined Ray and is no node of {settings.deployment}"]
    said += [f"{name} joined Ray without a GPU" for name in bare]
    hopeless = bool(unexpected or bare) and len(gpus) >= len(wanted)
    return Problem((*absent.values(), *bare), "; ".join(said), hopeless)
