"""Frozen data: what an operator wrote, what a node told, what will be done, what happened."""
