"""What the documents point at exists."""

import os
import re
from pathlib import Path

import pytest

REPO = Path(os.environ.get("SPARK_DEPLOY_CHECKOUT", Path(__file__).parents[2]))
DOCUMENTS = sorted([*REPO.glob("*.md"), *REPO.glob("docs/**/*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_every_test_that_a_document_names_exists(document):
    """A lesson whose test was renamed is a lesson without a test."""
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", document.read_text())
    missing = [f"{file}::{name}" for file, name in named if f"def {name}(" not in _text(REPO / file)]

    assert missing == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(REPO)))
def test_every_link_of_a_document_leads_somewhere(document):
    """Also after a file was moved."""
    links = re.findall(r"\]\((?!https?:|#|mailto:)([^)#\s]+)", document.read_text())
    missing = [link for link in links if not (document.parent / link).exists()]

    assert missing == []


def test_each_lesson_of_the_reference_deployment_has_a_test():
    """Six lessons, six rows, each with the test that keeps it learned."""
    rows = [
        line for line in (REPO / "docs/lessons.md").read_text().splitlines() if re.match(r"\| \d\. ", line)
    ]

    assert [row[2] for row in rows] == list("123456")
    assert all("`tests/" in row.rsplit("|", 2)[1] for row in rows)


def _text(path):
    return path.read_text() if path.is_file() else ""
