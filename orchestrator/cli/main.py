"""The command line: commands are imported when they are called, so that `--help` stays fast."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import NoReturn

import click

from orchestrator import __version__
from orchestrator.errors import Exit, SparkDeployError

# name (also of its module) -> what `--help` says of it, so that the list needs no import
COMMANDS = {
    "up": "Serve the recipe's model on the inventory's nodes.",
    "down": "Stop serving, and leave nothing on the nodes but caches.",
    "status": "Show what every node does.",
    "logs": "Show the containers' logs.",
    "bench": "Measure how fast it serves, and judge that.",
    "plan": "Show what `up` would change against what runs now.",
    "render": "Render the files that the nodes get, without a connection.",
    "trust": "Trust a node's SSH host key, after showing its fingerprint.",
    "runs": "List past runs, or replay one.",
}


# What a write to a file says when there is no more room.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


class LazyGroup(click.Group):
    """Commands by name; each lives in the module of its name."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module = importlib.import_module(f"orchestrator.cli.{name}")
        command: click.Command = getattr(module, name)
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            hint = f" Did you mean `{near[0]}`?" if near else ""
            context.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(context, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="spark-deploy")
def cli() -> None:
    """
    Serve one large model on a pair of NVIDIA DGX Sparks.

    \b
    Example:
      spark-deploy up -i inventories/home.yaml
    """  # noqa: D301


def main() -> NoReturn:
    """Run the command line, and end the process with one of the documented exit codes."""
    _open_standard_streams()
    sys.exit(_run())


def _open_standard_streams() -> None:
    """Point closed ones (`spark-deploy up >&-`) at /dev/null: else the next socket or file gets their number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))


def _run() -> int:
    try:
        code = cli.main(standalone_mode=False)
    except SparkDeployError as error:
        from orchestrator.ui.errors import show

        show(error, sys.stderr)
        return int(error.exit_code)
    except click.Abort:
        print("\nAborted: nothing was changed", file=sys.stderr)  # noqa: T201  # under the question and its ^C
        return int(Exit.INTERRUPTED)
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)
    except click.ClickException as error:
        error.show()
        return int(Exit.USAGE)
    except OSError as error:
        # Only a write has neither name: an open, a connect say what they were about, and are bugs here.
        if error.errno not in FULL or error.filename:
            raise
        return _cannot_write(error)
    return code if isinstance(code, int) else int(Exit.DONE)


def _cannot_write(error: OSError) -> int:
    """Say that the answer was lost: `render > FILE` on a disk that is full."""
    from orchestrator.ui.errors import show
    from orchestrator.ui.streams import let_go

    let_go(sys.stdout)
    problem = SparkDeployError(
        "standard output cannot be written", found=error.strerror, hint="free some space, or write elsewhere"
    )
    show(problem, sys.stderr)
    return int(problem.exit_code)
