"""How the machine's questions are answered, and what environment Ray and vLLM get."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from supervisor.api import Api
from supervisor.cluster import port_open, ray_members
from supervisor.files import drop_cache, model_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from supervisor.settings import Settings
    from supervisor.step import Ask


def environment(secrets: Mapping[str, str], session: str = "") -> dict[str, str]:
    """The container's, the secrets, and in a session a TMPDIR of its own: SIGKILL leaves sockets in it."""
    env = {"RAY_AUTH_MODE": "token", **os.environ, **secrets}
    env |= {"RAY_AUTH_TOKEN": env.pop("SPARK_DEPLOY_TOKEN", ""), "RAY_TMPDIR": "/tmp"}
    return env | ({"TMPDIR": f"/tmp/sd-{session}"} if session else {})


def work(ask: Ask, settings: Settings, secrets: Mapping[str, str], models: Path) -> Callable[[], object]:
    """What answers *ask*, by its value or its exception; it may block a little longer than asked for."""
    api = Api(settings, secrets.get("VLLM_API_KEY", ""))
    env, limit_s = environment(secrets), ask.limit_s
    answers: dict[str, Callable[[], object]] = {
        "port": lambda: port_open(settings.head_ip, settings.ray_port, limit_s),
        "members": lambda: ray_members(settings.ray_address, env, limit_s),
        "health": lambda: api.health(limit_s),
        "watch": lambda: api.watch(limit_s),
        "probe": lambda: api.complete(limit_s),
        "cache": lambda: drop_cache(model_folder(settings.model, models)),
    }
    return answers[ask.question]
