"""The cluster as the operator knows it."""
