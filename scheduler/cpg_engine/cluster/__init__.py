"""The cluster as arrays: what a cycle looks at, and the one ledger that simulation may change."""
