"""Carries a plan out, watches the pair come up, keeps the journal. The layer that changes the world."""
