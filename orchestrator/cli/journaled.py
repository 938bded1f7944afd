"""What `up` and `down` share: a journal, a screen, connections to the nodes, and an end that is told to all of them."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from orchestrator.errors import Exit, InterruptedRunError, SparkDeployError
from orchestrator.model.event import Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.model.event import Sink
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.run.journal import Journal
    from orchestrator.run.session import Session


class Run:
    """One run of a command: *sink* reaches the screen and the journal."""

    def __init__(self, journal: Journal, sink: Sink, pair: tuple[Inventory, Recipe]) -> None:
        self.journal = journal
        self.sink = sink
        self.inventory, self.recipe = pair
        self.began = time.time()

    @contextmanager
    def session(self) -> Iterator[tuple[Session, SparkDeployError | None]]:
        """Connect to the nodes; the error names those that cannot be reached, the session has the others."""
        from orchestrator.remote.connect import connected
        from orchestrator.run.lock import holder
        from orchestrator.run.session import Session

        variables = {
            "SPARK_DEPLOY_RUN": self.journal.id,
            "SPARK_DEPLOY_HOLDER": holder(self.journal.id, self.began),
        }
        with connected(self.inventory.nodes) as (hosts, error):
            yield Session(self.inventory, self.recipe, hosts, self.sink, self.journal.id, variables), error

    def hide_secrets(self, session: Session) -> None:
        """Hide what this run uses and what it found: an old release's logs may quote the old values."""
        from orchestrator.run.secrets import parse_secrets

        found = [
            value for content in session.secrets_found.values() for value in parse_secrets(content).values()
        ]
        self.journal.hide([*session.secrets.values(), *found])

    def finish(self, text: str, code: Exit = Exit.DONE) -> Exit:
        """Tell the answer, and give the exit code."""
        now = time.time()
        self.sink(
            Event(
                now, "finished", text, data={"exit_code": int(code), "elapsed_s": round(now - self.began, 1)}
            )
        )
        return code


@contextmanager
def journaled(
    command: str,
    pair: tuple[Inventory, Recipe],
    output: str,
    secrets: dict[str, str] | None = None,
    **data: Any,
) -> Iterator[Run]:
    """Give the run; its error, if it has one, ends up on the screen and in the journal."""
    from orchestrator.run.journal import Journal
    from orchestrator.run.mask import hide_in_error, masking
    from orchestrator.ui import errors
    from orchestrator.ui.sink import choose, tee

    inventory, recipe = pair
    with (
        Journal.open(os.environ, inventory.name, command, time.time) as journal,
        choose(output, sys.stderr, sys.stdout) as screen,
    ):
        journal.hide((secrets or {}).values())
        journal.describe(argv=sys.argv[1:], version=__version__)
        journal.keep_sources(
            inventory=inventory.source, **({"recipe": recipe.source} if recipe.source else {})
        )
        sink = tee(journal, masking(screen, journal.hidden))
        run = Run(journal, sink, pair)
        about = {
            "command": command,
            "inventory": inventory.source,
            "recipe": recipe.name,
            "version": __version__,
        }
        sink(Event(run.began, "started", data={**about, "run": journal.id, **data}))
        try:
            yield run
        except KeyboardInterrupt:
            error = InterruptedRunError("interrupted before anything was changed")
            sink(errors.event(error, time.time()))
            raise error from None
        except SparkDeployError as error:
            hide_in_error(error, journal.hidden)
            sink(errors.event(error, time.time()))
            raise
        except Exception:  # a bug: its traceback is for us, its end for the journal
            run.finish("", Exit.FAILED)
            raise
