"""Events and answers for a terminal, for CI and for machines."""
