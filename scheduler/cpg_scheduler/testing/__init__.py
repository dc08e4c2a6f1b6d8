"""A scheduler without an API server, for tests: state, queue and driver are real, what they talk to is not."""
