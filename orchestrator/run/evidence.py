"""What a failed start leaves on the nodes, fetched before anything is undone."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING

from orchestrator.errors import SparkDeployError
from orchestrator.planning import layout
from orchestrator.run.look import on_all
from orchestrator.shell import sh

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator.remote.host import Host
    from orchestrator.run.session import Session

    Save = Callable[[str, str, bytes], None]

LOG_LINES = 20_000  # a start with NCCL_DEBUG=INFO writes some 2 000
ARCHIVE_BYTES = 2 * 1024**2
LIMIT_S = 30
FAILED = re.compile(r"\[supervise\] [0-9:]+ failed\b")


def fetch_evidence(session: Session, save: Save) -> dict[str, str]:
    """
    Save what each node can tell, and give the containers' logs by node.

    A node that cannot be reached or asked is skipped with a warning: evidence is best effort.
    """
    return on_all(session.hosts, lambda host: _fetch(host, session, save))


def last_attempt(log: str) -> str:
    """Give what a container said up to the end of its last attempt: after it speaks only what was killed then."""
    lines = log.splitlines()
    ends = [0, *(number for number, line in enumerate(lines) if FAILED.match(line))]
    return "\n".join(lines[ends[-2] : ends[-1]] if len(ends) > 1 else lines)


def _fetch(host: Host, session: Session, save: Save) -> str:
    name = host.node.name
    if name in session.lost:
        return ""
    log = ""
    try:
        container = host.docker().container(session.inventory.container)
        if container:
            save(name, "inspect.json", json.dumps(container, indent=1).encode())
            content = b"".join(host.docker().logs(session.inventory.container, tail=LOG_LINES))
            log = content.decode("utf-8", "replace")
            save(name, "container.log", content)
        run = layout.run_folder(session.inventory, host.node)
        state = host.read(run / "state.json")
        if state:
            save(name, "state.json", state)
        pack = f"tar --create --gzip . | head --bytes={ARCHIVE_BYTES} | base64 --wrap=0"
        packed = host.run(f"cd {sh(run)}/evidence 2>/dev/null && {pack}", timeout_s=LIMIT_S)
        if packed.exit_code == 0 and packed.stdout:
            save(name, "supervisor.tar.gz", base64.b64decode(packed.stdout))
    except SparkDeployError as error:
        session.tell("warning", f"evidence of {name} is not whole: {error.message}", node=name)
    return log
