"""Instantiation: the groups of a Workload that asks for them, made and kept as its templates say."""
