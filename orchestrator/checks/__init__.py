"""Facts against inventory and recipe (what refuses an `up`), and whether a starting pair has come there. Pure."""
