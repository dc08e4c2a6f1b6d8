"""The optional validating webhook: its answers, its server, and its certificate."""
