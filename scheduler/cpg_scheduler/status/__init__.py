"""Conditions and events of pods and groups."""
