"""Instantiation: the groups of a Workload that asks for them, created and kept as its templates say."""
