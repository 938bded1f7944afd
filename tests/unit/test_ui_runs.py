"""`spark-deploy runs`: the past can be seen again."""

import json

import pytest
from click.testing import CliRunner

from orchestrator.cli.main import cli
from orchestrator.errors import UsageError
from orchestrator.model.event import Event
from orchestrator.run.journal import Journal

NINE = 1_796_072_400


@pytest.fixture
def invoke(tmp_path):
    def call(*arguments):
        result = CliRunner(env={"XDG_STATE_HOME": str(tmp_path), "TZ": "UTC"}).invoke(
            cli, ["runs", *arguments], catch_exceptions=True
        )
        if isinstance(result.exception, UsageError):
            raise result.exception
        return result

    return call


@pytest.fixture
def run_id(tmp_path):
    """A run that failed, with evidence."""
    with Journal.open({"XDG_STATE_HOME": str(tmp_path)}, "home", "up", lambda: NINE) as journal:
        journal(Event(NINE + 1, "step-started", "load the model", "ready"))
        journal.save("spark-2", "container.log", b"CUDA out of memory\n")
        journal(Event(NINE + 9, "error", "spark-2 gave up\n  hint   less memory", data={"exit_code": 1}))
    return journal.id


def test_runs_are_listed_with_their_outcome(invoke, run_id):
    """One line each."""
    lines = invoke().stdout.splitlines()

    assert lines[0].split() == ["ID", "WHEN", "COMMAND", "DEPLOYMENT", "OUTCOME", "TOOK"]
    assert lines[1].startswith(run_id)
    assert lines[1].endswith("up       home        failed   9.0 s")


def test_no_run_is_no_error(invoke):
    """Standard output stays empty, so that a script sees no line."""
    result = invoke()

    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no runs yet\n")


def test_a_run_is_replayed_and_its_files_are_listed(invoke, run_id):
    """With the error, which only the terminal of that day has seen."""
    shown = invoke("show", run_id[:10]).stdout

    assert "step       ready: load the model\n" in shown
    assert "ERROR      spark-2 gave up\n" in shown
    assert "  evidence/spark-2/container.log\n" in shown


def test_a_run_as_json_is_one_object_a_line(invoke, run_id):
    """First the run, then its events."""
    told = [json.loads(line) for line in invoke("show", "last", "--output", "json").stdout.splitlines()]

    assert [each["schema"] for each in told] == ["spark-deploy/run/v1", *["spark-deploy/event/v1"] * 2]
    assert (told[0]["id"], told[0]["outcome"], told[0]["seconds"]) == (run_id, "failed", 9.0)


def test_the_list_as_json_is_one_object_a_run(invoke, run_id):
    """For whoever counts failures."""
    told = [json.loads(line) for line in invoke("--output", "json").stdout.splitlines()]

    assert [(each["id"], each["exit_code"]) for each in told] == [(run_id, 1)]


def test_an_unknown_run_is_a_usage_error(invoke, run_id):
    """Exit code 2, and where to look."""
    with pytest.raises(UsageError, match="no run has an id that begins with 'nope'") as refused:
        invoke("show", "nope")

    assert refused.value.exit_code == 2


@pytest.mark.parametrize("arguments", [["--help"], ["show", "--help"]])
def test_help_has_an_example(invoke, arguments):
    """Every command shows how it is called."""
    assert "Example:\n    spark-deploy runs" in invoke(*arguments).stdout
