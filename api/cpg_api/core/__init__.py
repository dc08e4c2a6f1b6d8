"""The built-in kinds that scheduling reads."""
