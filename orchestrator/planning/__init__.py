"""Inventory, recipe and facts into release files and plans. Pure: no SSH, Docker, clock or environment."""
