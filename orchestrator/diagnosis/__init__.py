"""Logs of all nodes into one named cause. Pure."""
