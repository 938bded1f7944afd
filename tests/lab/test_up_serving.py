"""A pair that serves, looked at from all sides: brought up once, read only by every test."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import orchestrator
from orchestrator import assets

from .admin import AdminHome
from .inventory import write_inventory
from .promises import CONTAINER, OP_STATE, completion, containers, errors, hashes_on_nodes, locks
from .terminal import at_a_terminal

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from .lab import Lab

SECRET = "sk-Zm9v-quite-a-secret-0815"  # no word of any log
KEY = {"VLLM_API_KEY": SECRET}
FILES = {
    "run.sh",
    "node.env",
    "ray.args",
    "supervise.json",
    "supervise.py",
    "supervisor/head.py",
    "manifest.json",
}


@dataclass(frozen=True)
class Pair:
    """What the one `up` of this module said, and the laptop that it ran on."""

    lab: Lab
    home: AdminHome
    dry_run: str
    up: subprocess.CompletedProcess[str]
    logins: dict[str, int]

    def spark_deploy(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.home.spark_deploy(*arguments, env=KEY)

    @property
    def journal(self) -> Path:
        """The folder of the `up`, the first of all runs."""
        return min((self.home.home / ".local/state/spark-deploy/runs").iterdir())


@pytest.fixture(scope="module")
def pair(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = AdminHome(lab, tmp_path_factory.mktemp("serving") / "home").create()
    write_inventory(home, recipe={"secrets": ["VLLM_API_KEY"], "env": {"LAB_VLLM_START": "1.5"}})
    dry_run = home.spark_deploy("up", "--dry-run", env=KEY)
    before = {key: lab.logins(key) for key in "ab"}
    done = home.spark_deploy("up", env=KEY)
    assert done.returncode == 0, done.stderr
    logins = {key: lab.logins(key) - before[key] for key in "ab"}
    yield Pair(lab, home, dry_run.stdout, done, logins)
    lab.clean()


@pytest.fixture
def other_recipe(pair: Pair) -> str:
    """An inventory whose recipe is not the one that serves."""
    recipe = {"secrets": ["VLLM_API_KEY"], "env": {"LAB_VLLM_START": "1.5"}, "vllm": {"max-model-len": 2048}}
    return write_inventory(pair.home, file="other.yaml", recipe_name="longer", recipe=recipe).name


@pytest.fixture
def newer_tool(pair: Pair, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`newer_tool("up")`: spark-deploy with another supervise.py."""
    installed = tmp_path / "orchestrator/_assets"
    package = Path(orchestrator.__file__).parent
    shutil.copytree(package, installed.parent, ignore=shutil.ignore_patterns("_assets"))
    for folder in (assets.templates(), assets.shipped_inventories()):
        shutil.copytree(folder, installed / folder.name)
    with (installed / "templates/supervise.py").open("a") as file:
        file.write("# newer\n")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return pair.home.run(
            sys.executable, "-m", "orchestrator", *arguments, env={**KEY, "PYTHONPATH": str(tmp_path)}
        )

    return run


@pytest.fixture(autouse=True)
def clean_nodes() -> None:
    """The pair is shared: cleaned when the last test is through."""


# --- up -------------------------------------------------------------------------------------------


def test_up_says_where_the_model_is_served_and_how_to_get_there(pair):
    """
    The answer is the whole standard output, so that `up > endpoint` is of use; a loopback API needs a tunnel.
    """
    answer = (
        "serving: stub at http://127.0.0.1:8000/v1 on spark-a (it listens on the head's loopback alone)\n"
        "  from here: ssh -N -L 8000:127.0.0.1:8000 spark-a\n"
    )

    assert pair.up.stdout == answer


def test_up_shows_the_phases_of_both_nodes_with_the_start_limit(pair):
    """
    A load takes minutes: who waits must see that something moves, on which node, and how long it may take.
    """
    assert re.search(
        r"progress   spark-a: starting-engine \(weights \d/7\) \([\d.]+ s of 1 min\)", pair.up.stderr
    )
    assert re.search(r"progress   spark-b: joined \(spark-a is starting-engine\)", pair.up.stderr)


def test_up_does_the_steps_that_the_dry_run_showed_and_in_that_order(pair):
    """
    Promise 1 for what is done, as for the bytes. The lock is let go node by node.
    """
    shown = re.findall(r"^(?:Lock|Step|Unlock) \d+/\d+ (\S+): ", pair.dry_run, re.MULTILINE)
    done = re.findall(r"  step done  (\S+) ", pair.up.stderr)

    assert done == [*shown, "unlock"]


def test_up_says_which_transport_the_ranks_use(pair):
    """
    A pair on TCP serves, but at a tenth of the speed: the log's word is shown, not assumed.
    """
    assert re.search(r"note       spark-a: .*NET/IB", pair.up.stderr)


def test_up_proves_that_it_serves_by_a_streamed_completion(pair):
    """
    An open port proves nothing; tokens do.
    """
    assert re.search(r"note       spark-a: 16 chunks streamed, the first after \d+\.\d\d s", pair.up.stderr)


def test_every_file_on_the_nodes_is_what_the_dry_run_printed(pair):
    """
    Promise 1: what is shown is what runs.
    """
    printed = re.findall(
        r"^sha256:(\w{64})  (spark-\w):~/.spark-deploy/lab/spark-\w/releases/(.+)$",
        pair.dry_run,
        re.MULTILINE,
    )

    assert {f"{sha256}  {node}:{path}" for sha256, node, path in printed} == hashes_on_nodes(pair.lab)
    assert {path.partition("/")[2] for _, _, path in printed} >= FILES


def test_the_journal_keeps_the_files_that_are_on_the_nodes(pair):
    """
    After the nodes are gone, the journal still says what ran.
    """
    release = json.loads((pair.journal / "run.json").read_text())["release"][:12]
    root = pair.journal / "files"
    files = {path.relative_to(root): path for path in root.rglob("*") if path.is_file()}
    kept = {
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {below.parts[0]}:{release}/{'/'.join(below.parts[1:])}"
        for below, path in files.items()
    }

    assert kept == hashes_on_nodes(pair.lab)


def test_the_journal_s_plan_is_the_dry_run(pair):
    """
    On empty nodes there is nothing that facts could change, so both are the same text.
    """
    assert (pair.journal / "plan.txt").read_text() == pair.dry_run


def test_a_whole_up_is_one_login_per_node(pair):
    """
    Nodes with rate limits, fail2ban or a second factor count logins.
    """
    assert pair.logins == {"a": 1, "b": 1}


def test_no_lock_stays_after_up(pair):
    """
    A lock that stays would refuse the next run.
    """
    assert locks(pair.lab) == []


# --- secrets --------------------------------------------------------------------------------------


def test_the_api_answers_401_without_the_key(pair):
    """
    The secret has reached the engine, though it stands in no rendered file.
    """
    assert completion(pair.lab).endswith("401")


def test_the_api_serves_with_the_key(pair):
    """
    The same value that was in the environment of `up`.
    """
    assert completion(pair.lab, key=SECRET).endswith("data: [DONE]\n\n200")


def test_the_secret_is_in_no_journal_and_no_output(pair):
    """
    Promise 8: journals are sent to others for help.
    """
    journals = pair.home.home / ".local/state"
    holding = [
        path for path in journals.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()
    ]

    assert holding == []
    assert SECRET not in pair.up.stdout + pair.up.stderr + pair.dry_run


@pytest.mark.parametrize("key", ["a", "b"])
def test_the_secret_is_in_no_docker_inspect_no_process_list_and_no_log(pair, key):
    """
    Whoever may look at a node's processes or containers does not thereby hold the API key.
    """
    inspected = pair.lab.docker(key, "inspect", CONTAINER)
    processes = pair.lab.run(key, "ps", "-e", "-ww", "-o", "args")
    logged = pair.lab.try_run(key, "docker", "logs", CONTAINER)

    assert "supervise.py" in processes
    assert SECRET not in inspected + processes + logged.stdout + logged.stderr


def test_the_secret_lies_in_one_private_file_on_a_node(pair):
    """
    secrets.env is the only place, and nobody but its owner may read it.
    """
    found = pair.lab.run("b", "grep", "-rl", SECRET, OP_STATE).split()

    assert found == [f"{OP_STATE}/lab/spark-b/run/secrets.env"]
    assert pair.lab.run("b", "stat", "--format", "%a %U", *found).split() == ["600", "op"]


# --- up again -------------------------------------------------------------------------------------


def test_up_again_does_nothing(pair):
    """
    Promise 5: the same bytes serve already, so nothing is asked, stopped or started.
    """
    before = containers(pair.lab)

    again = pair.spark_deploy("up")

    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "already serving")
    assert "step" not in again.stderr
    assert containers(pair.lab) == before


def test_up_as_json_is_one_object_a_line_and_nothing_else(pair):
    """
    For programs: what a human would read on either stream comes as events on standard output.
    """
    again = pair.spark_deploy("up", "--output", "json")
    events = [json.loads(line) for line in again.stdout.splitlines()]

    assert (again.returncode, again.stderr) == (0, "")
    assert {event["schema"] for event in events} == {"spark-deploy/event/v1"}
    assert (events[0]["kind"], events[-1]["kind"]) == ("started", "finished")
    assert events[-1]["text"].startswith("already serving: stub at http://127.0.0.1:8000/v1")
    assert events[-1]["data"]["exit_code"] == 0


def test_plan_says_that_nothing_would_change(pair):
    """
    `plan` is the question without the deed.
    """
    planned = pair.spark_deploy("plan")

    assert (planned.returncode, planned.stdout) == (
        0,
        "this release serves: serving\nnothing to do: this release serves\n",
    )


def test_a_secret_without_a_value_is_refused_before_any_connection(pair):
    """
    Without the key in the environment the engine would serve anybody.
    """
    refused = pair.home.spark_deploy("up")

    assert (refused.returncode, refused.stderr) == (
        3,
        "Error: the secret VLLM_API_KEY has no value\n"
        "  at     recipes/stub.yaml\n"
        "  found  nothing in the environment\n"
        "  hint   export VLLM_API_KEY=…, or say secrets_from: in the inventory\n",
    )


def test_the_question_declined_changes_nothing(pair, other_recipe):
    """
    It never silently stops a serving model; the answer is a no unless somebody types y.
    """
    before = containers(pair.lab)

    code, said = at_a_terminal(pair.home, "n", "up", "-i", other_recipe, env=KEY)

    assert code == 1
    assert re.search(r"Stop it and serve the new one\? \[y/N\]: n\n(.*\n)*.*nothing was changed\n", said)
    assert containers(pair.lab) == before
    assert locks(pair.lab) == []


def test_the_end_of_the_input_at_the_question_is_an_interruption(pair, other_recipe):
    """
    Ctrl-D and Ctrl-C are no answer; the journal says `interrupted`, as the exit code does.
    """
    code, said = at_a_terminal(pair.home, "\x04", "up", "-i", other_recipe, env=KEY)
    newest = pair.spark_deploy("runs").stdout.splitlines()[1]

    assert (code, said.splitlines()[-1]) == (130, "Error: interrupted before anything was changed")
    assert "  interrupted  " in newest
    assert locks(pair.lab) == []


def test_without_a_terminal_the_question_is_an_error(pair, other_recipe):
    """
    A cron job must not wait for an answer that nobody gives.
    """
    before = containers(pair.lab)

    done = pair.spark_deploy("up", "-i", other_recipe)

    assert (done.returncode, errors(done)) == (
        2,
        "Error: Stop it and serve the new one? — nobody to ask: standard input is no terminal\n  hint   add --yes\n",
    )
    assert containers(pair.lab) == before
    assert locks(pair.lab) == []


def test_plan_shows_another_recipe_as_a_difference(pair, other_recipe):
    """
    The diff is what an operator decides by: node, file, line.
    """
    before = containers(pair.lab)

    planned = pair.spark_deploy("plan", "-i", other_recipe)

    assert planned.returncode == 0
    assert "another release is there: release " in planned.stdout
    assert "--- a/spark-a/serve.args\n+++ b/spark-a/serve.args\n" in planned.stdout
    assert "\n---max-model-len=4096\n+--max-model-len=2048\n" in planned.stdout
    assert containers(pair.lab) == before


def test_a_newer_tool_leaves_a_serving_pair_alone_and_says_so(pair, newer_tool):
    """
    Its supervise.py differs, inventory and recipe do not: no reason to unload a model; `--refresh` does it.
    """
    before = containers(pair.lab)

    again = newer_tool("up")

    assert (again.returncode, again.stdout.partition(":")[0]) == (0, "already serving"), again.stderr
    assert (
        "note       a tool update is available: only run.sh or the supervisor differs; `up --refresh` puts it on"
        in again.stderr
    )
    assert containers(pair.lab) == before


# --- status and logs ------------------------------------------------------------------------------


def test_status_of_a_serving_pair_is_0(pair):
    """
    For humans: one line a node, and nothing more where nothing is wrong.
    """
    status = pair.spark_deploy("status")
    heading, *nodes = [line.split() for line in status.stdout.splitlines()]

    assert status.returncode == 0
    assert heading == ["NODE", "ROLE", "PHASE", "FOR", "RELEASE", "ATTEMPTS", "TRANSPORT"]
    assert [line[:3] for line in nodes] == [["spark-a", "head", "serving"], ["spark-b", "worker", "serving"]]
    assert nodes[0][-1] == "NET/IB"


def test_status_as_json_is_one_versioned_object(pair):
    """
    For monitors: whether it serves, and every node's word.
    """
    status = json.loads(pair.spark_deploy("status", "--output", "json").stdout)
    nodes = {node["node"]: (node["role"], node["status"]) for node in status["nodes"]}

    assert (status["schema"], status["deployment"]) == ("spark-deploy/status/v1", "lab")
    assert (status["serving"], status["api_answers"]) == (True, True)
    assert nodes == {"spark-a": ("head", "serving"), "spark-b": ("worker", "serving")}


def test_status_needs_no_secret(pair):
    """
    Looking is free: who asks how it goes need not hold the key.
    """
    assert pair.home.spark_deploy("status").returncode == 0


def test_logs_of_all_nodes_begin_with_the_node_s_name(pair):
    """
    A cause on one node shows beside what the other did at that time.
    """
    logs = pair.spark_deploy("logs")
    names = {line.split()[0] for line in logs.stdout.splitlines()}

    assert (logs.returncode, names) == (0, {"spark-a", "spark-b"})
    assert re.search(r"^spark-a  \[vllm\] .*Application startup complete", logs.stdout, re.MULTILINE)


def test_logs_of_one_node_are_as_its_container_wrote_them(pair):
    """
    Nothing is before the lines, so that they can go into other tools.
    """
    logs = pair.spark_deploy("logs", "spark-b", "--tail", "2")

    assert logs.returncode == 0
    assert re.fullmatch(r"\[supervise\] \S+ joined .*\n\[supervise\] \S+ serving .*\n", logs.stdout)


def test_logs_of_an_unknown_node_names_the_nodes(pair):
    """
    A mistyped name is a usage error, and needs no connection.
    """
    logs = pair.spark_deploy("logs", "spark-c")

    assert (logs.returncode, logs.stderr) == (
        2,
        "Error: there is no node spark-c\n  at     spark-deploy.yaml\n  wanted spark-a, spark-b\n",
    )


def test_followed_logs_end_by_ctrl_c(pair):
    """
    A follower is ended by hand, and that is no error worth a traceback.
    """
    with pair.home.background_spark_deploy("logs", "-f") as logs:
        logs.wait_for_text("Application startup complete")
        logs.interrupt()
        code = logs.wait(10)

    assert (code, logs.stderr) == (130, "")


def test_followed_logs_show_new_lines(pair):
    """
    That is what -f is for.
    """
    with pair.home.background_spark_deploy("logs", "-f", "--tail", "1", "spark-a") as logs:
        logs.wait_for_text("[")
        completion(pair.lab, model="no-such-model", key=SECRET)
        logs.wait_for_text('"POST /v1/chat/completions HTTP/1.1" 404', 20)
        logs.process.send_signal(signal.SIGTERM)


# --- runs -----------------------------------------------------------------------------------------


def test_runs_lists_the_up(pair):
    """
    The newest is first, so the `up` of this module is last.
    """
    *_, last = pair.spark_deploy("runs").stdout.splitlines()

    assert last.split()[0] == pair.journal.name
    assert re.search(r"  up +lab +done +[\d.]+ s$", last)


def test_runs_show_replays_the_up(pair):
    """
    The same lines as were shown then, and the files that were kept.
    """
    shown = pair.spark_deploy("runs", "show", pair.journal.name)

    assert shown.returncode == 0
    assert [line for line in pair.up.stderr.splitlines() if line not in shown.stdout] == []
    assert "files/spark-a/run.sh" in shown.stdout
