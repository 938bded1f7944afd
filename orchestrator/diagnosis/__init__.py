"""Logs and state files into one named cause. Pure."""
