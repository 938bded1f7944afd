"""What people see, whole: tests/golden/ui/."""

import io
import json
from dataclasses import replace
from datetime import timezone

import pytest

from orchestrator.errors import ManyError, RefusedError, UnreachableError
from orchestrator.model.event import Event, from_mapping, to_mapping
from orchestrator.model.plan import Action, Complete, Plan, Script, Step, Upload, UploadSecrets, Watch
from orchestrator.model.release import Release, ReleaseFile
from orchestrator.planning import layout
from orchestrator.run.history import Run
from orchestrator.ui import errors
from orchestrator.ui.jsonl import jsonl
from orchestrator.ui.past import run_json, show_head, show_runs
from orchestrator.ui.plain import plain
from orchestrator.ui.show import show_plan, show_release_diff
from orchestrator.ui.status import StatusRow, show_status, status_json
from tests.unit.examples import INVENTORY, container, state

NINE = 1_796_072_400.0  # 2026-11-30 21:00:00 UTC
ID12 = "0123456789ab"


def plan_and_release():
    def files(node):
        own = ReleaseFile("ray.args", f"--node-ip-address={node.fabric.ip}\n".encode())
        return (ReleaseFile("run.sh", b"#!/bin/bash\nset -euo pipefail\n", 0o755), own)

    release = Release(
        "home", ReleaseFile("manifest.json", b"{}\n"), {n.name: files(n) for n in INVENTORY.nodes}
    )

    def step(name, title, work):
        return Step(name, title, tuple(Action(node.name, title, work(node)) for node in INVENTORY.nodes))

    def upload(node):
        return Upload(layout.release_folder(INVENTORY, node, release), release.by_node[node.name])

    def secrets(node):
        return UploadSecrets(layout.run_folder(INVENTORY, node), ("VLLM_API_KEY", "SPARK_DEPLOY_TOKEN"))

    def script(text, limit_s):
        return lambda _node: Script(text, limit_s)

    def on_head(name, title, work):
        return Step(name, title, (Action("spark-1", f"{title}, as agreed", work),))

    steps = (
        step("files", "put the release on the nodes", upload),
        step("secrets", "put the secrets on the nodes", secrets),
        step("start", f"start release {ID12}", script("set -euo pipefail\n\ndocker run x\n", 120)),
        on_head("join", "form the Ray cluster on the fabric", Watch("joined", 25)),
        on_head("ready", "load the model", Watch("ready", 3600)),
        on_head("verify", "prove that it serves", Complete(120)),
    )
    plan = Plan(
        f"serve release {ID12} of home",
        steps,
        undo=(step("remove", "remove container and files", script("docker rm --force x", 120)),),
        lock=(step("lock", "hold the lock", script("mkdir lock\n", 30)),),
        unlock=(step("unlock", "let the lock go", script("rm -r lock\n", 30)),),
    )
    return plan, release


def run_events(*, failing):
    ready = [
        Event(NINE + 2, "step-started", "load the model", "ready"),
        Event(NINE + 2, "action-started", "ready within 3600 s", "ready", "spark-1"),
        *(
            Event(
                NINE + 2 + seconds,
                "progress",
                text,
                node=node,
                data={"phase": text.split(" ", maxsplit=1)[0], "elapsed_s": seconds, "limit_s": 3600},
            )
            for seconds, node, text in (
                (0.2, "spark-1", "starting-engine (weights 1/7)"),
                (0.3, "spark-2", "joined"),
                (60, "spark-1", "starting-engine (weights 1/7)"),
                (130, "spark-1", "starting-engine (capturing graphs 40%)"),
            )
        ),
    ]
    begun = [
        Event(
            NINE,
            "started",
            data={
                "command": "up",
                "version": "0.1.0",
                "inventory": "home.yaml",
                "recipe": "tiny",
                "release": ID12,
            },
        ),
        Event(NINE, "step-started", "put the release on the nodes", "files"),
        Event(NINE, "action-started", "put the release on the nodes", "files", "spark-1"),
        Event(NINE, "action-started", "put the release on the nodes", "files", "spark-2"),
        Event(
            NINE + 1, "action-done", "put the release on the nodes", "files", "spark-2", {"elapsed_s": 1.0}
        ),
        Event(
            NINE + 1.4, "action-done", "put the release on the nodes", "files", "spark-1", {"elapsed_s": 1.4}
        ),
        Event(NINE + 1.5, "step-done", "", "files", data={"elapsed_s": 1.5}),
        Event(NINE + 1.5, "note", "the lock was left by a run that is no more"),
        *ready,
    ]
    if failing:
        text = "gave up\n  found  exit code 1"
        return [
            *begun,
            Event(NINE + 140, "warning", "lost spark-2, trying for 60 s", node="spark-2"),
            Event(NINE + 150, "action-failed", text, "ready", "spark-1"),
            Event(NINE + 150, "undo-started", "gave up: back to the state before"),
            Event(NINE + 160, "error", text, data={"exit_code": 1}),
        ]
    return [
        *begun,
        Event(NINE + 150, "action-done", "", "ready", "spark-1", {"elapsed_s": 148.0}),
        Event(NINE + 150, "step-done", "", "ready", data={"elapsed_s": 148.0}),
        Event(NINE + 150, "finished", "serving: org/tiny", data={"exit_code": 0, "elapsed_s": 150.0}),
    ]


def through(make_sink, events):
    stream = io.StringIO()
    sink = make_sink(stream)
    for event in events:
        sink(event)
    return stream.getvalue()


def test_the_dry_run_shows_every_byte(golden):
    """The page an operator reads before he says yes."""
    plan, release = plan_and_release()

    golden("ui/plan.txt", show_plan(plan, release, INVENTORY))


def test_a_difference_reads_like_a_code_review(golden):
    """Unified, per node and file, as git shows it."""
    _, new = plan_and_release()
    old = {node: {file.path: file.content for file in files} for node, files in new.by_node.items()}
    old["spark-2"] = {"run.sh": b"#!/bin/bash\nset -eu\n", "old.txt": b"gone\n"}

    golden("ui/diff.txt", show_release_diff(old, new))


@pytest.mark.parametrize("failing", [False, True], ids=["done", "failed"])
def test_a_run_in_plain_lines(golden, failing):
    """What a CI log holds."""
    text = through(lambda stream: plain(stream, timezone=timezone.utc), run_events(failing=failing))

    golden("ui/plain-failed.txt" if failing else "ui/plain-done.txt", text)


def test_a_run_in_json_lines(golden):
    """What a machine reads; the schema is stable."""
    golden("ui/events.jsonl", through(jsonl, run_events(failing=True)))


def status_rows():
    serving = state("serving", ID12, attempt_limit=5, transport="NET/IB")
    clock = serving.at + 1
    ended = {"attempts": 5, "attempt_limit": 5, "cause": "vLLM exited with 1", "cause_node": "spark-1"}
    lines = ("ValueError: unknown architecture", "Engine core initialization failed")
    gave_up = replace(serving, phase="gave-up", last_lines=lines, **ended)
    loading = replace(serving, phase="starting-engine", progress="weights 3/7", transport="", attempts=1)
    rows = [
        ("serving", "head", serving, container(ID12)),
        ("loading", "head", loading, container(ID12)),
        ("joining", "head", replace(serving, phase="joining", missing=("spark-2",)), container(ID12)),
        ("gave-up", "worker", gave_up, container(ID12)),
        ("stopped", "worker", serving, container(ID12, status="exited", exit_code=137)),
        ("nothing", "worker", None, None),
    ]
    return [
        *(StatusRow(*row, clock=clock) for row in rows),
        StatusRow("silent", "worker", serving, container(ID12), clock=serving.at + 300),
        StatusRow("far", "worker", error="no route to host"),
    ]


def test_status_explains_every_kind_of_row(golden):
    """One look at the pair."""
    golden("ui/status.txt", show_status(status_rows()))


def test_status_as_json(golden):
    """Pretty-printed here only for the review."""
    golden(
        "ui/status.json",
        json.dumps(json.loads(status_json(status_rows()[3:6], deployment="home")), indent=1) + "\n",
    )


def past(tmp_path, number, events):
    folder = tmp_path / f"20261130T21000{number}-00000{number}"
    folder.mkdir()
    return Run(
        folder.name,
        folder,
        NINE + number,
        "up",
        "home",
        ID12,
        "0.1.0",
        ("up", "--yes"),
        tuple(from_mapping(to_mapping(event)) for event in events),
    )


def test_the_list_of_runs_tells_how_each_went(golden, tmp_path):
    """Newest first, an unfinished one among them."""
    runs = [
        past(tmp_path, 3, run_events(failing=False)[:4]),
        past(tmp_path, 2, run_events(failing=True)),
        past(tmp_path, 1, run_events(failing=False)),
    ]

    golden("ui/runs.txt", show_runs(runs, timezone.utc))


def test_a_replayed_run_shows_error_and_answer_at_their_times(golden, tmp_path):
    """Head, events, as `runs show` prints them."""
    text = ""
    for number, failing in ((1, False), (2, True)):
        run = past(tmp_path, number, run_events(failing=failing))
        text += show_head(run, timezone.utc)
        text += through(lambda stream: plain(stream, timezone=timezone.utc, replay=True), run.events) + "\n"

    golden("ui/replay.txt", text)


def test_a_run_as_json(golden, tmp_path):
    """One object a run; the events follow as events."""
    text = run_json(past(tmp_path, 1, run_events(failing=False)))

    golden("ui/run.json", text.replace(str(tmp_path), "RUNS"))


def test_errors_are_told_with_found_wanted_and_hint(golden):
    """All of them at once, in the same shape."""
    stream = io.StringIO()
    several = ManyError(
        (
            UnreachableError(
                "spark-2 does not answer", at="spark-2", found="timed out after 10 s", hint="ping it"
            ),
            RefusedError(
                "the image is not on spark-1",
                at="spark-1",
                found="no image",
                wanted="example/vllm:1",
                hint="docker pull example/vllm:1",
            ),
        )
    )
    errors.show(several, stream, {})

    golden("ui/errors.txt", stream.getvalue())
