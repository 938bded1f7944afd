"""What the promises of `up` and `down` look like on the nodes, in one place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable

    from .admin import Background
    from .lab import Lab

CONTAINER = "spark-deploy-lab"
OP_STATE = "/home/op/.spark-deploy"
FOLDERS = f"""for folder in {OP_STATE} /root/.spark-deploy; do
  mountpoint --quiet $folder || ls -d $folder 2>/dev/null
  find $folder -mindepth 1 2>/dev/null
done; true"""
NOTHING_LEFT = (
    "  nodes  nothing of this deployment is on them\n"  # how the error of a run that was undone ends
)
STREAM_END = "data: [DONE]"


def assert_as_before(lab: Lab, keys: Iterable[str] = "ab") -> None:
    """Promise 4 where nothing ran before: no container, no process, no file, no folder, no lock."""
    left = {key: [*lab.leftovers(key), *lab.run(key, "sh", "-c", FOLDERS).splitlines()] for key in keys}

    assert left == {key: [] for key in left}, left


def assert_serves(lab: Lab, model: str = "stub", *, key: str = "") -> None:
    """Promise 7: a completion streams to its end, and no run holds a lock."""
    answer = completion(lab, model, key=key)

    assert STREAM_END in answer, answer
    assert locks(lab) == []


def completion(lab: Lab, model: str = "stub", *, key: str = "") -> str:
    """What the API says to a streamed chat completion, whatever it is; asked on the head itself."""
    body = {"model": model, "max_tokens": 4, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    options = ["--silent", "--no-buffer", "--max-time", "20", "--write-out", "%{http_code}"]
    secret = ["--header", f"Authorization: Bearer {key}"] if key else []
    url = "http://127.0.0.1:8000/v1/chat/completions"
    return lab.try_run("a", "curl", *options, *secret, "--json", json.dumps(body), url).stdout


def locks(lab: Lab) -> list[str]:
    return [
        f"{key}: {name}"
        for key in "ab"
        for name in lab.run(key, "sh", "-c", f"ls -1A {OP_STATE}/locks 2>/dev/null || true").splitlines()
    ]


def containers(lab: Lab) -> dict[str, tuple[str, str, int]]:
    """Node -> ID, time of start, PID of the deployment's container: equal before and after = not restarted."""
    template = "{{.Id}} {{.State.StartedAt}} {{.State.Pid}}"
    found = {key: lab.docker(key, "inspect", "--format", template, CONTAINER).split() for key in "ab"}
    return {key: (words[0], words[1], int(words[2])) for key, words in found.items()}


def releases(lab: Lab) -> dict[str, str]:
    """Node -> id12 of the release that its container runs."""
    template = '{{index .Config.Labels "spark-deploy.release"}}'
    return {key: lab.docker(key, "inspect", "--format", template, CONTAINER) for key in "ab"}


def hashes_on_nodes(lab: Lab) -> set[str]:
    """`<SHA-256>  <node>:<path below releases/>` of every release file."""
    found = set()
    for key in "ab":
        folder = f"{OP_STATE}/lab/{lab.node(key).name}/releases"
        lines = lab.run(key, "sh", "-c", f"cd {folder} && find . -type f -exec sha256sum {{}} +").splitlines()
        found |= {line.replace("  ./", f"  {lab.node(key).name}:") for line in lines}
    return found


def run_another_deployment(lab: Lab, key: str) -> None:
    """A container `spark-deploy-other` runs on the node, as another inventory's `up` would leave one."""
    labels = ["--label", "spark-deploy.deployment=other", "--name", "spark-deploy-other"]
    lab.docker(key, "run", "--detach", *labels, "--entrypoint", "sleep", "lab/vllm:stub", "600")


def refuse_ssh(lab: Lab, key: str) -> None:
    """The node's port 22 answers with a reset from now on, on open connections too; clean_nodes ends it."""
    reset = ["-j", "REJECT", "--reject-with", "tcp-reset"]
    lab.run(key, "iptables", "-w", "-A", "INPUT", "-p", "tcp", "--dport", "22", *reset)


def errors(done: subprocess.CompletedProcess[str] | Background) -> str:
    """All errors that a command ends with."""
    return "Error: " + f"\n{done.stderr}".split("\nError: ", 1)[1]
