"""The supervisor of one node; ../supervise.py starts it, docs/supervision.md tells it all."""
