"""The server as a process of its own, and the way to ask it for the truth."""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

ROOT = Path(__file__).parents[2]


class Truth:
    """
    `with Truth(ttft=0.05, itl=0.02) as truth:` — options as in options.py; asked over a port of its own.

    *url* has no /v1. *ca_file* is the authority behind *tls*.
    """

    def __init__(self, *, tls: bool = False, cpu: int | None = None, port: int = 0, **options: Any) -> None:
        self._words = [f"--set={name}={json.dumps(value)}" for name, value in options.items()]
        self._words += ["--tls"] * tls + ([] if cpu is None else [f"--cpu={cpu}"]) + [f"--port={port}"]
        self._tls, self._prefix = tls, options.get("prefix", "")

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "tests.truth", *self._words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        said = json.loads(self._process.stdout.readline())
        self.port, self._control, self.ca_file = said["port"], said["control_port"], said["ca_file"]
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.stdout.close()
        self._process.wait()
        if self.ca_file:
            shutil.rmtree(Path(self.ca_file).parent)

    @property
    def url(self) -> str:
        scheme, host = ("https", "localhost") if self._tls else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.port}{self._prefix}"

    def config(self, **options: Any) -> dict[str, Any]:
        """Changes them from now on; *refuse* is one, too: True refuses new connections. Gives all options."""
        self._prefix = options.get("prefix", self._prefix)
        return self._asked("/gt/config", options)

    def reset(self) -> None:
        """Forgets the requests, not the counters of /metrics."""
        self._asked("/gt/reset")

    def summary(self) -> dict[str, Any]:
        return self._asked("/gt/summary")

    def requests(self) -> list[dict[str, Any]]:
        """The record of each, in the order of arrival."""
        return self._asked("/gt/requests")

    def bodies(self) -> list[dict[str, Any]]:
        """What was asked, in the same order."""
        return self._asked("/gt/bodies")

    def _asked(self, path: str, body: dict[str, Any] | None = None) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self._control, timeout=30)
        try:
            connection.request("POST", path, json.dumps(body or {}))
            answer = connection.getresponse()
            content = json.loads(answer.read())
        finally:
            connection.close()
        if answer.status != 200:
            raise ValueError(content["error"]["message"])
        return content
