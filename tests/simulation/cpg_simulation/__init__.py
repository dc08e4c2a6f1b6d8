"""A deterministic simulator of the whole system."""
