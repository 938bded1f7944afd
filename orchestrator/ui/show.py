"""Plans and differences as text: the dry run, and what an `up` would change. Pure."""

from __future__ import annotations

import difflib
from itertools import groupby
from typing import TYPE_CHECKING

from orchestrator.model.plan import Complete, Script, Upload, UploadSecrets, Watch
from orchestrator.model.release import Release
from orchestrator.ui.printable import duration, visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from orchestrator.model.inventory import Inventory
    from orchestrator.model.plan import Action, Plan, Step, Work
    from orchestrator.model.release import ReleaseFile

_VARIABLES = (
    "Scripts find SPARK_DEPLOY_RUN (this run) and SPARK_DEPLOY_HOLDER (who runs it) in their environment."
)
_UNTIL = {"joined": "all nodes have joined", "ready": "the engine is ready"}


def show_plan(plan: Plan, release: Release | None, inventory: Inventory) -> str:
    """
    Give all that *plan* does, byte by byte: the dry run, and the journal's plan.txt.

    Each file has a line `sha256:<64 digits>  <node>:<path>` of its own; secrets appear by name only.
    """
    lines = [
        f"Plan: {plan.title}",
        "",
        "Nodes",
        *_nodes(inventory),
        *([f"Release {release.id12} (manifest {release.id})"] if release else []),
        *(["", _VARIABLES] if plan.lock or plan.steps else []),
        *_steps("Lock", plan.lock),
        *_steps("Step", plan.steps),
        *(["", "Should a step fail or be interrupted, these lead back:"] if plan.undo else []),
        *_steps("Undo", plan.undo),
        *(["", "Whatever happened:"] if plan.unlock else []),
        *_steps("Unlock", plan.unlock),
        *_files((*plan.lock, *plan.steps, *plan.undo, *plan.unlock)),
    ]
    return "\n".join(lines) + "\n"


def show_release_diff(
    old: Mapping[str, Mapping[str, bytes]], new: Release | Mapping[str, Mapping[str, bytes]]
) -> str:
    """
    Give a unified diff per node and file (node -> path -> content); "" when nothing differs.

    The manifest, which is nothing but the sums of the other files, is shown only when it alone differs.
    """
    wanted = _contents(new) if isinstance(new, Release) else new
    files = [
        (node, path, old.get(node, {}).get(path), wanted.get(node, {}).get(path))
        for node in sorted({*old, *wanted})
        for path in sorted({*old.get(node, {}), *wanted.get(node, {})})
    ]
    changed = [file for file in files if file[2] != file[3]]
    told = [file for file in changed if file[1] != "manifest.json"] or changed
    return "".join(line for file in told for line in _diff(*file))


def _contents(release: Release) -> dict[str, dict[str, bytes]]:
    return {node: {file.path: file.content for file in files} for node, files in release.by_node.items()}


def _nodes(inventory: Inventory) -> Iterator[str]:
    width = max(len(node.name) for node in inventory.nodes)
    for node in inventory.nodes:
        fabric = f"{node.fabric.ip} on {node.fabric.interface}"
        yield f"  {node.name:<{width}}  {node.role:<6}  ssh {node.ssh}  fabric {fabric}"


def _steps(word: str, steps: tuple[Step, ...]) -> Iterator[str]:
    for number, step in enumerate(steps, 1):
        yield ""
        yield f"{word} {number}/{len(steps)} {step.name}: {step.title}"
        for (title, work), actions in groupby(step.actions, key=lambda action: (action.title, action.work)):
            yield from _action(step, title, work, [action.node for action in actions])


def _action(step: Step, title: str, work: Work, nodes: list[str]) -> Iterator[str]:
    told = "" if title == step.title else f"{title}; "
    on = f"  on {', '.join(nodes)}: {told}"
    match work:
        case Script(text, timeout_s):
            yield f"{on}script of {len(text.encode())} bytes, at most {duration(timeout_s)}"
            yield from _quoted(text, "    ")
        case Upload(folder, files):
            yield f"{on}{len(files)} files into {folder}"
            width = max((len(file.path) for file in files), default=0)
            yield from (f"    {f.path:<{width}}  {f.mode:04o}  {len(f.content):>7} bytes" for f in files)
        case UploadSecrets() as secrets:
            restored = ", the values that were there before" if secrets.restore else ""
            yield f"{on}{secrets.folder}/secrets.env (0600{restored}): {', '.join(secrets.names)}"
        case Watch(until, limit_s):
            until_then = f"until {_UNTIL[until]}, at most {duration(limit_s)}"
            yield f"{on}follow the supervisors {until_then}; changes nothing"
        case Complete(limit_s):
            yield f"{on}stream one completion over SSH, at most {duration(limit_s)}; changes nothing"


def _files(steps: Iterable[Step]) -> Iterator[str]:
    seen: dict[bytes, str] = {}
    uploads = list(_uploaded(action for step in steps for action in step.actions))
    if uploads:
        yield from ("", "Files")
    for place, file in uploads:
        yield ""
        yield f"sha256:{file.sha256}  {place}"
        facts = f"  mode {file.mode:04o}, {len(file.content)} bytes"
        if file.content in seen:
            yield f"{facts}, the same bytes as {seen[file.content]}"
        else:
            seen[file.content] = place
            yield facts
            yield from _quoted(file.content, "  ")


def _uploaded(actions: Iterable[Action]) -> Iterator[tuple[str, ReleaseFile]]:
    for action in actions:
        if isinstance(action.work, Upload):
            place = f"{action.node}:{action.work.folder}"
            yield from ((f"{place}/{file.path}", file) for file in action.work.files)


def _quoted(content: str | bytes, indent: str) -> Iterator[str]:
    """Every line behind a bar; what is no text or would move the cursor is spelled out."""
    text = _text(content)
    for line in visible(text).removesuffix("\n").split("\n") if text else ():
        yield f"{indent}| {line}" if line else f"{indent}|"
    if text and not text.endswith("\n"):
        yield f"{indent}(no line break at the end)"


def _text(content: str | bytes) -> str:
    return content if isinstance(content, str) else content.decode("utf-8", "backslashreplace")


def _diff(node: str, path: str, old: bytes | None, new: bytes | None) -> Iterator[str]:
    name = f"{node}/{path}"
    before, after = (visible(_text(content or b"")).splitlines(keepends=True) for content in (old, new))
    names = ("/dev/null" if old is None else f"a/{name}", "/dev/null" if new is None else f"b/{name}")
    lines = list(difflib.unified_diff(before, after, *names)) or [f"--- {names[0]}\n", f"+++ {names[1]}\n"]
    for line in lines:
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
