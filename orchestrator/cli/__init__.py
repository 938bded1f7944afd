"""One file per command: load, decide, act, show."""
