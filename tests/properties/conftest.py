"""A profile for long runs: ``pytest tests/properties --hypothesis-profile=long``."""

from hypothesis import settings

settings.register_profile("long", max_examples=5000)
