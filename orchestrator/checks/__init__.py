"""Facts against inventory and recipe: what stops an `up` before it changes anything. Pure."""
