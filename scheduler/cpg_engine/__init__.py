"""The engine: every scheduling decision, made by pure functions over an immutable request."""
