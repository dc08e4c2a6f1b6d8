"""Building blocks for tests of the engine, of the shells, and of whoever embeds either."""
