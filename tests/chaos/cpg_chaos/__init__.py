"""Faults at random moments on a real control plane under load, and checks of what its API server shows meanwhile."""
