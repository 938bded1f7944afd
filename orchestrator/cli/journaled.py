"""What commands with a journal share: a screen, connections to the nodes, and an end that is told to all of them."""

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
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from typing import TextIO

    from orchestrator.model.event import Kind, Sink
    from orchestrator.model.inventory import Inventory
    from orchestrator.model.recipe import Recipe
    from orchestrator.run.journal import Journal
    from orchestrator.run.session import Session

    Screens = Callable[[str, TextIO, TextIO], AbstractContextManager[Sink]]


class Run:
    """One run of a command: *sink* reaches the screen and the journal."""

    def __init__(self, journal: Journal, screen: Sink, secrets: Mapping[str, str]) -> None:
        from orchestrator.run.mask import masking
        from orchestrator.ui.sink import tee

        self.journal = journal
        self.sink = tee(journal, masking(screen, journal.hidden))
        self.secrets = secrets
        self.began = time.time()

    def begin(self, command: str, **about: str) -> None:
        """Tell what is about to be done, and to the journal with which words."""
        self.journal.hide(self.secrets.values())
        self.journal.describe(argv=sys.argv[1:], version=__version__)
        data = {"command": command, **about, "version": __version__, "run": self.journal.id}
        self.sink(Event(self.began, "started", data=data))

    def tell(self, kind: Kind, text: str = "", *, step: str = "", **data: Any) -> None:
        self.sink(Event(time.time(), kind, text, step, data=data))

    def finish(self, text: str, code: Exit = Exit.DONE) -> Exit:
        """Tell the answer, and give the exit code."""
        now = time.time()
        about = {"exit_code": int(code), "elapsed_s": round(now - self.began, 1)}
        self.sink(Event(now, "finished", text, data=about))
        return code

    def fail(self, error: SparkDeployError) -> None:
        from orchestrator.run.mask import hide_in_error
        from orchestrator.ui import errors

        hide_in_error(error, self.journal.hidden)
        self.sink(errors.event(error, time.time()))


class NodesRun(Run):
    """One run on the nodes of an inventory."""

    def __init__(
        self, journal: Journal, screen: Sink, secrets: Mapping[str, str], pair: tuple[Inventory, Recipe]
    ) -> None:
        super().__init__(journal, screen, secrets)
        self.inventory, self.recipe = pair

    @contextmanager
    def session(self) -> Iterator[tuple[Session, SparkDeployError | None]]:
        """Connect to the nodes; the error names those that cannot be reached, the session has the others."""
        from orchestrator.remote.connect import connected
        from orchestrator.run.lock import holder
        from orchestrator.run.session import Session

        run_id = self.journal.id
        variables = {"SPARK_DEPLOY_RUN": run_id, "SPARK_DEPLOY_HOLDER": holder(run_id, self.began)}
        with connected(self.inventory.nodes) as (hosts, error):
            yield Session(self.inventory, self.recipe, hosts, self.sink, variables, self.secrets), error

    def hide_secrets(self, session: Session) -> None:
        """Hide what this run uses and what it found: an old release's logs may quote the old values."""
        from orchestrator.run.secrets import parse_secrets

        for values in (session.secrets, *map(parse_secrets, session.secrets_found.values())):
            self.journal.hide(values.values())

    def begin_with_files(self, command: str) -> None:
        """Begin, and keep the inventory and the recipe in the journal."""
        self.begin(command, inventory=self.inventory.source, recipe=self.recipe.name)
        sources = {"inventory": self.inventory.source, "recipe": self.recipe.source}
        self.journal.keep_sources(**{name: path for name, path in sources.items() if path})


@contextmanager
def journaled(
    command: str,
    pair: tuple[Inventory, Recipe],
    output: str,
    secrets: Mapping[str, str] | None = None,
    screens: Screens | None = None,
) -> Iterator[NodesRun]:
    """Give the run on the nodes; its error, if it has one, ends up on the screen and in the journal."""
    with _opened(command, pair[0].name, output, screens) as (journal, screen):
        run = NodesRun(journal, screen, secrets or {}, pair)
        run.begin_with_files(command)
        with _ending(run):
            yield run


@contextmanager
def journaled_elsewhere(
    command: str, place: str, output: str, secrets: Mapping[str, str], screens: Screens | None = None
) -> Iterator[Run]:
    """The same for what is done to no node of ours: *place* stands where a deployment's name would."""
    with _opened(command, place, output, screens) as (journal, screen):
        run = Run(journal, screen, secrets)
        run.begin(command, at=place)
        with _ending(run):
            yield run


@contextmanager
def _opened(command: str, name: str, output: str, screens: Screens | None) -> Iterator[tuple[Journal, Sink]]:
    from orchestrator.run.journal import Journal
    from orchestrator.ui.sink import choose

    with (
        Journal.open(os.environ, name, command, time.time) as journal,
        (screens or choose)(output, sys.stderr, sys.stdout) as screen,
    ):
        yield journal, screen


@contextmanager
def _ending(run: Run) -> Iterator[None]:
    """Tell the run's error, whatever it is."""
    try:
        yield
    except KeyboardInterrupt:
        error = InterruptedRunError("interrupted before anything was changed")
        run.fail(error)
        raise error from None
    except SparkDeployError as error:
        run.fail(error)
        raise
    except Exception:  # a bug: its traceback is for us, its end for the journal
        run.finish("", Exit.FAILED)
        raise
