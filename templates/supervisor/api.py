"""The engine's HTTP API on this node."""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

from supervisor.step import Watch
from supervisor.watching import parse_metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from supervisor.settings import Settings


class Api:
    """vLLM's HTTP server on this node. A proxy in the environment is none of its business."""

    def __init__(self, settings: Settings, key: str) -> None:
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(settings.api_host, settings.api_host)
        self._base = f"http://{host}:{settings.api_port}"
        self._model = settings.served_name
        self._headers = {"content-type": "application/json"} | (
            {"authorization": f"Bearer {key}"} if key else {}
        )
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def health(self, limit_s: float) -> int:
        return self._call("/health", None, limit_s)[0]

    def watch(self, limit_s: float) -> Watch:
        health = self.health(limit_s)
        status, text = self._call("/metrics", None, limit_s) if health == 200 else (0, "")
        return Watch(health, parse_metrics(text) if status == 200 else None)

    def complete(self, limit_s: float) -> int:
        """Ask for one token; give the HTTP status. 404: a model without plain completions."""
        asked = {"model": self._model, "max_tokens": 1, "temperature": 0}
        status, _ = self._call("/v1/completions", {**asked, "prompt": "1"}, limit_s)
        if status == 404:
            messages = [{"role": "user", "content": "1"}]
            status, _ = self._call("/v1/chat/completions", {**asked, "messages": messages}, limit_s)
        return status

    def _call(self, path: str, body: Mapping[str, Any] | None, limit_s: float) -> tuple[int, str]:
        data = json.dumps(body).encode() if body else None
        request = urllib.request.Request(self._base + path, data, self._headers)
        try:
            with self._opener.open(request, timeout=limit_s) as response:
                return response.status, response.read().decode(errors="replace")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, ""
        except http.client.HTTPException as error:
            raise OSError(f"{type(error).__name__}: {error}") from error
