"""The cluster as arrays: nodes, classes of pods, storage, and the one ledger that a simulation may change."""
