"""What the documents say of files, tests, commands, defaults and exit codes is so."""

import os
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import click
import pytest

from orchestrator.cli.main import COMMANDS, cli
from orchestrator.errors import Exit
from orchestrator.model.recipe import Supervision

REPO = Path(os.environ.get("SPARK_DEPLOY_CHECKOUT", Path(__file__).parents[2]))
DOCUMENTS = sorted([*REPO.glob("*.md"), *REPO.glob("docs/**/*.md"), *REPO.glob("tests/**/*.md")])
# `planning/facts.py` is orchestrator/planning/facts.py; what stands alone, such as `state.json`, may be a node's.
OURS = re.compile(r"`([\w./-]+/[\w.-]+\.(?:py|j2|md|yaml))[`:]")
ELSEWHERE = ("vllm/", "ray/", "jit/")  # files of vLLM, Ray and FlashInfer, given as sources
THE_READERS = ("./spark-deploy.yaml", "./inventories/default.yaml", "docs/decisions/NNNN-name.md")

of_every_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO))
)


@of_every_document
def test_every_test_that_a_document_names_exists(document):
    """A lesson whose test was renamed is a lesson without a test."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text())
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in _text(REPO / file)]

    assert missing == []


@of_every_document
def test_every_file_of_ours_that_a_document_names_exists(document):
    """A reader who is sent to a file finds it."""
    named = OURS.findall(document.read_text())
    places = (REPO, REPO / "orchestrator", document.parent)
    missing = [
        name
        for name in named
        if not name.startswith(ELSEWHERE)
        and name not in THE_READERS
        and not any((place / name).exists() for place in places)
    ]

    assert missing == []


@of_every_document
def test_every_link_of_a_document_leads_somewhere(document):
    """Also after a file was moved."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]

    assert missing == []


@of_every_document
def test_every_command_of_a_document_is_one_that_the_tool_takes(document):
    """With its options: a reader types it off."""
    lines = re.findall(rf"spark-deploy ((?:{'|'.join(COMMANDS)})\b[^`\n#…]*)", document.read_text())

    assert [line for line in lines if not _taken(shlex.split(line))] == []


def test_the_readme_lists_every_command():
    """In the order of `--help`."""
    rows = re.findall(r"^\| `(\w+)` \|", (REPO / "README.md").read_text(), re.MULTILINE)

    assert rows == list(COMMANDS)


def test_the_readme_lists_every_exit_code():
    """A script goes by them."""
    sentence = re.search(
        r"^Exit codes: (.+?)\n\n", (REPO / "README.md").read_text(), re.MULTILINE | re.DOTALL
    )

    assert sentence is not None
    assert [int(part.split()[0]) for part in sentence[1].split("; ")] == list(Exit)


def test_the_limits_of_a_recipe_are_documented_with_their_defaults():
    """A number in a document goes stale unseen."""
    row = next(
        line for line in (REPO / "docs/inventory.md").read_text().splitlines() if "`supervision.*`" in line
    )

    assert {name: float(value) for name, value in re.findall(r"`(\w+)` (\d+)", row)} == asdict(Supervision())


def test_each_lesson_of_the_reference_deployment_has_a_test():
    """Six lessons, six rows, each with the test that keeps it learned."""
    rows = [
        line for line in (REPO / "docs/lessons.md").read_text().splitlines() if re.match(r"\| \d\. ", line)
    ]

    assert [row[2] for row in rows] == list("123456")
    assert all("`tests/" in row.rsplit("|", 2)[1] for row in rows)


def _taken(words):
    """Whether the command line takes *words*; nothing is done."""
    name, *arguments = words
    parent = click.Context(
        cli, **cli.context_settings
    )  # a command keeps the `-h` of the first context it meets
    try:
        cli.get_command(parent, name).make_context(name, arguments, parent=parent)
    except click.UsageError:
        return False
    return True


def _text(path):
    return path.read_text() if path.is_file() else ""
