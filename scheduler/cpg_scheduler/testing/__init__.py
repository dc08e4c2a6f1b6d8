"""A scheduler without an API server, for tests: cache, queue and loop are real, what talks to a server is a fake."""
