"""Metrics, and what is measured for them."""
