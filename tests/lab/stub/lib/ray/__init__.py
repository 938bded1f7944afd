"""A stand-in for the `ray` module: what a join probe needs of it."""
