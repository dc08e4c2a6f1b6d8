"""Nights as data: a cluster, what users do, and what fails when."""
