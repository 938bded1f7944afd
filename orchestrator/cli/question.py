"""Questions before something that serves is stopped."""

from __future__ import annotations

import sys

import click

from orchestrator.errors import UsageError


def _fitted(text: str) -> str:
    """Fold prose; the lines of a diff stay as they are."""
    from orchestrator.ui.printable import folded
    from orchestrator.ui.streams import columns_of

    width = columns_of(sys.stderr)
    return "\n".join(folded(line, width) if line[:1].isalnum() else line for line in text.split("\n"))


def confirm(text: str, question: str, *, yes: bool, machine: bool) -> bool:
    """
    Show *text*, ask *question*, give the answer; *yes* answers without asking.

    Raises:
        UsageError: nobody can be asked, and there was no --yes.
        KeyboardInterrupt: the answer was Ctrl-C, or the end of the input.
    """
    if not machine:
        click.echo(_fitted(text), err=True)
    if yes:
        return True
    if machine or not sys.stdin.isatty():
        why = "--output json asks nobody" if machine else "nobody to ask: standard input is no terminal"
        raise UsageError(f"{question} — {why}", hint="add --yes")
    return ask(question)


def ask(question: str) -> bool:
    """Raises KeyboardInterrupt: the answer was Ctrl-C, or the end of the input."""
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort:
        click.echo(err=True)  # the answer's ^C stands on the question's line
        raise KeyboardInterrupt from None
