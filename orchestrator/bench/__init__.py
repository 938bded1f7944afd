"""What the numbers of `bench` mean: pure functions from bytes on the wire to a verdict."""
