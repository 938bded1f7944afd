"""`python3 tests/lab …` or `python3 -m tests.lab …`: the lab by hand."""

import sys
from pathlib import Path

if not __package__:  # run as a folder: make the package importable by its own name
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.lab.cli import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
