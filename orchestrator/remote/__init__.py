"""One SSH connection per node, strict about host keys, and a read-only Docker view over it."""
