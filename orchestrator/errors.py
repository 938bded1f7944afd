"""Everything that can go wrong, with the exit code it ends in."""

from __future__ import annotations

import re
from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class Exit(IntEnum):
    """Exit codes of every command. A code with a higher rank outranks the others: 5 over 4."""

    DONE = 0
    FAILED = 1  # a step failed, was declined, or (status) the pair is not serving
    USAGE = 2  # also: a question, but no terminal and no --yes
    FILE = 3  # an inventory, a recipe or a secret file is wrong
    CHECK = 4  # a check refused before anything was changed
    UNREACHABLE = 5  # a node cannot be reached, or its host key is unknown or changed
    LOCKED = 6
    REGRESSION = 7  # `bench`: slower than the baseline
    INCONCLUSIVE = 8  # `bench`: too noisy to say
    INVALID = 9  # `bench`: the measurement cannot be trusted
    INTERRUPTED = 130


class SparkDeployError(Exception):
    """
    A mistake or a broken machine: what happened, where, what was found and wanted, what to do.

    A bug is any other exception, and shows a traceback.
    """

    exit_code = Exit.FAILED

    def __init__(
        self,
        message: str,
        *,
        at: str | None = None,
        found: str | None = None,
        wanted: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.at = at
        self.found = found
        self.wanted = wanted
        self.hint = hint
        self.nodes: str | None = None  # what runs on the nodes now, where a run had begun to change them

    @property
    def node(self) -> str:
        """What *at* begins with: it is `node`, `node: action` or `node (address)` for what a node did."""
        return re.split(r"[ ,:]", self.at or "")[0]

    def __str__(self) -> str:
        """Give the lines that the terminal shows, without the leading `Error:`."""
        details = (
            ("at", self.at),
            ("found", self.found),
            ("wanted", self.wanted),
            ("hint", self.hint),
            ("nodes", self.nodes),
        )
        return "\n".join([self.message, *(f"  {name:<6} {text}" for name, text in details if text)])


class UsageError(SparkDeployError):
    """The command line asks for something that cannot be."""

    exit_code = Exit.USAGE


class FileError(SparkDeployError):
    """An inventory, a recipe, a template or a secret file is wrong; *at* is `file:line`."""

    exit_code = Exit.FILE


class RefusedError(SparkDeployError):
    """A check failed; nothing was changed."""

    exit_code = Exit.CHECK


class UnreachableError(SparkDeployError):
    """A node cannot be reached: no route, no login, an unknown or changed host key; *at* is the node."""

    exit_code = Exit.UNREACHABLE


class LockedError(SparkDeployError):
    """Somebody else is changing this deployment."""

    exit_code = Exit.LOCKED


class StepFailedError(SparkDeployError):
    """A step of a plan failed; *at* is `node: action`."""


class InterruptedRunError(SparkDeployError):
    """The operator (or a signal) stopped the run."""

    exit_code = Exit.INTERRUPTED


class PairLeftAloneError(UnreachableError):
    """A node was lost after the start: the supervisors go on, and nothing is rolled back."""


class ManyError(SparkDeployError):
    """Several errors at once, all shown; the exit code is the one that outranks the others."""

    def __init__(self, errors: tuple[SparkDeployError, ...]) -> None:
        super().__init__("\n".join(map(str, errors)))
        self.errors = errors
        self.exit_code = max(error.exit_code for error in errors)

    def __str__(self) -> str:
        return "\n".join(map(str, self.errors))


def each(error: SparkDeployError) -> tuple[SparkDeployError, ...]:
    """Give the single errors that *error* is made of, also of a bundle in a bundle."""
    bundled = error.errors if isinstance(error, ManyError) else ()
    return tuple(single for inner in bundled for single in each(inner)) or (error,)


def one_or_many(errors: Sequence[SparkDeployError]) -> SparkDeployError:
    """Give one error as itself, several as a ManyError."""
    return errors[0] if len(errors) == 1 else ManyError(tuple(errors))
