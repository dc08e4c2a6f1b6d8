"""Devices of dynamic resource allocation: which a claim may have, and which it gets."""
