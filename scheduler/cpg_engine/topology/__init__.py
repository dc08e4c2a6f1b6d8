"""Topology domains: the sets of nodes that share a value of a label."""
